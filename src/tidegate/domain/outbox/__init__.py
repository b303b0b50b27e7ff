"""What is owed to the world: intents in the commit that owes them, attempts and outcomes after it.

names.py            ids and idempotency keys
redaction.py        what may be written, and what an error may say
facts.py            what happens; ``owe``, by which another slice adds an intent to its own facts
states.py           the states of intents and of drift
rows.py, folds.py   intents, deliveries, queues, drifts
slices.py           request, record an attempt, redrive
reconciliation.py   what a look at the world means
documents.py        an intent and its attempts as one document
"""
