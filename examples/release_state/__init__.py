"""Release state: one registry row per scope, its history, and effects outside.

app.py           the schema, releases to pin, and a walk: python -m examples.release_state.app
claims.py        documents of provenance and confidence, as an operator and a pipeline build them
directions.py    intent first, and effect first with recovery
refusals.py      everything that the registry refuses
"""
