"""Eight people approve different revisions of one package at once: `python -m bench approvals`.

All eight must be published, with numbers that have no gap, on every engine. Each round has a
package of its own. The verbs run in the lane of the package, as in a server.
"""
