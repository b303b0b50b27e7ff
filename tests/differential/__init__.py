"""Engines compared with the oracle: the same programs give the same answers, and races no
anomaly.
"""
