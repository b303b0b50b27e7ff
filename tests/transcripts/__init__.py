"""Rollouts as transcripts: what is done, a line `----`, and what changed."""
