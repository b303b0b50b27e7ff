"""The outbox: effects outside that a commit requests and the worker carries out after it.

names               ids and idempotency keys
redaction           which texts may be stored
facts               the events; ``request_intent`` adds an intent to the facts of another slice
states              the states of intents and of drift
rows, folds         intents, deliveries, queues, drifts
slices              request, record an attempt, redrive, cancel
reconciliation      compare external systems with the newest intents
documents           an intent and its attempts as one document
refusals            the errors
"""
