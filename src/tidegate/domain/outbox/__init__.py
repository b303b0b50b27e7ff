"""The outbox: effects outside, requested in the commit that needs them, attempted after it.

names               ids and idempotency keys
redaction           what may be written, and what an error may say
facts               what happens; ``request_intent`` adds an intent to the facts of another slice
states              the states of intents and of drift
rows, folds         intents, deliveries, queues, drifts
slices              request, record an attempt, redrive
reconciliation      what an observation of the outside means
documents           an intent and its attempts as one document
refusals            what a request is refused with
"""
