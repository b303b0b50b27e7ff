"""Channels: which hosts a package reaches, how, and which of its rollouts counts now.

facts.py, rows.py   what happens, what stands
machine.py          ``step``: the channel's newest rollout, holds; SupersessionExpected
folds.py            channels, incarnations, freezes, stops, quarantined closures
slices.py           create, edit, hold, freeze, lift a quarantine
policy.py           which hosts, in which waves, how long each soaks
stops.py            the row that says whether a channel is frozen or held
refusals.py         what is said no with
"""
