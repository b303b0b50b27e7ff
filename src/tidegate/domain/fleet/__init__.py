"""The fleet: its hosts with their labels, whom each channel claims, budgets over all rollouts.

selectors     which hosts are meant, as text
claims        which channel a host belongs to
policies      whether a channel's policy can be carried out
budgets       how many slots a budget has
facts, rows   what happens, what stands
folds         how one becomes the other
slices        enroll, label, revoke, retire, note who is silent, set and remove budgets
credentials   one-time tokens, used ones, revoked keys
refusals      what can be said against a request
"""

from __future__ import annotations

from tidegate.domain.fleet import credentials, facts, folds, rows, slices

FACTS = facts.FACTS
SLICES = (*slices.SLICES, *credentials.SLICES)
COLLECTIONS = (*rows.COLLECTIONS, *credentials.COLLECTIONS)
FOLDS = folds.FOLDS

__all__ = ["COLLECTIONS", "FACTS", "FOLDS", "SLICES"]
