"""The HTTP API: routes as values, decoded and guarded by one layer, refused by default.

routing       what a route is, and what a handler gets and gives
routes        ROUTES: every route of the server, a list that one can read
decoding      bytes of a request become typed values, or a problem that names every bad field
auth          who asks: session, API token; what they may
app           the ASGI application: find, guard, decode, run, answer, log
problems      errors as RFC 9457 problem details
openapi       the document of all this, derived from the same values
feed          the log as it grows: long poll and server-sent events from one shared tail

A file per noun: repositories, packages, revisions, releases, outbox, publications, access …
"""
