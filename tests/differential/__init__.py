"""Engines beside the oracle: the same programs, the same answers; the same races, no anomaly."""
