"""Rollouts as transcripts: the input, a line `----`, and what changed."""
