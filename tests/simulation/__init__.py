"""Seeded fleets against the production control plane: invariants at every commit."""
