"""Reads for people: history, documents, search, forecasts."""
