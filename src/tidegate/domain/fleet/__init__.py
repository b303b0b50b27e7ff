"""The fleet: its hosts with their labels, which channel claims them, budgets over all rollouts.

selectors        expressions over labels, as text
claims           which channel a host belongs to
agent_versions   which agents are too old
budgets          how many slots a budget has
facts, rows      what happens, and the rows
folds            how facts become rows
slices           enroll, label, revoke, retire, note silence, set and remove budgets
credentials      one-time tokens, used ones, revoked keys
joins            tokens that enroll many new hosts
refusals         the errors
"""
