"""The HTTP API as clients use it: a real server on a free loopback port."""
