"""How fast hosts can report into a rollout, and what a large fleet costs.

fleets     a fleet of some size with its rollouts, filled through the real verbs
measure    reports in batches and one by one, opening, plan pass, rebuild
clients    one process of several that report into one rollout
stages     where the CPU time of a report goes
results    the figures, and the floors
report     tables for people, its part of docs/performance.md
"""
