"""The HTTP API as its clients meet it: a real server on a free loopback port."""
