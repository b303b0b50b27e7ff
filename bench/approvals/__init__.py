"""Eight approvals of different revisions of one package at once: `python -m bench approvals`.

All eight must be published, under numbers without a gap, on every engine. Each round is a package
of its own. The verbs run through the lane of the package, as a server runs them.
"""
