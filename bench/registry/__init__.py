"""How long a person waits for a verb on packages and releases, in a small and in a large registry.

sample_registry   a registry of some size, filled through the real decisions and folds
measure           each verb, timed on both registries in turns
results           the figures, and the floors
report            tables for people, JSON for programs, its part of docs/performance.md
"""
