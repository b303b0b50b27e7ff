"""Real database servers for tests and benches, started here and stopped here.

    postgres.running()   a new cluster in a temporary directory, reached by its socket
    dynamodb.running()   a new process on loopback
    s3.running()         a new process on loopback
    shared.url(kind)     the one server of this test run, shared by all of its processes
    python -m tests.servers    starts all, prints their URLs, waits

A server that is not available is an error with its reason, never a skip.
"""
