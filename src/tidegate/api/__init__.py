"""The HTTP API.

routes     ROUTES: every route of the server, a file per noun
agents     what the agents of hosts request and report
feed       the log as it grows: pages, long polls and server-sent events from one shared tail
openapi    the OpenAPI document of all routes, derived from the same values
metrics    the metrics that Prometheus scrapes
health     livez, readyz, version

A route decodes a request, calls an operation or a query, and encodes the result.
"""
