"""Release state: one registry row per scope, its history, and effects outside.

app.py           the schema, releases to pin, a demonstration: python -m examples.release_state.app
claims.py        documents of provenance and confidence, from an operator and from a pipeline
directions.py    intent first, and effect first with recovery
refusals.py      every kind of command that the registry refuses
"""
