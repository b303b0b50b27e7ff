"""Every verb of an operator, once: permission, lane, idempotency key, decision, outcome."""
