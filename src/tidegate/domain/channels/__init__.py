"""Channels: which hosts a package reaches, how, and which of its rollouts is the current one.

facts.py, rows.py     what happens, and the rows
machine.py            ``step``: the channel's newest rollout, holds; SupersessionExpected
folds.py              channels, incarnations, freezes, stops, quarantined closures
slices.py             create, edit, hold, freeze, lift a quarantine
policy.py             whether a policy can work; policy_document.py: policies as JSON
default_policy.py     the policy of a channel that is created without one
ladder.py             the releases that succeeded, and what a rollback takes
stops.py              the row that says whether a channel is frozen or held
refusals.py           the errors
"""
