"""The outbox: send effects to targets at least once, then reconcile."""
