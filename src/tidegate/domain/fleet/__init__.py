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
