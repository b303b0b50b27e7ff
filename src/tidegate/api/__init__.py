"""The HTTP API.

routes     ROUTES: every route of the server, a file per noun
agents     what agents of hosts ask and report
feed       the log as it grows: pages, long poll and server-sent events from one shared tail
openapi    the document of all routes, derived from the same values
metrics    what Prometheus scrapes
health     livez, readyz, version

A route decodes a request, calls an operation or a query, and encodes the result.
"""
