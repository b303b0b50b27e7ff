"""Rollouts: a release on its way to the hosts of a channel, wave by wave.

states.py, facts.py, names.py      the words; ``channel@ref`` and ``channel@ref~n``
transitions.py, machine.py         which events a state accepts, and what they do: ``step``
tallies.py                         hosts counted by wave and state
effects.py                         the four effects, and what they come to
rows.py, folds.py                  rollouts, tallies, gates; quarantine is folded by channels
slices.py                          pause, resume, prune, gates
promotion.py                       promote a release: pin and rollout in one commit
clearance.py                       resume, waive or abandon a rollout that was stopped
preconditions.py                   the checks that reports, orders and skips share
report_slices.py, order_slices.py  what agents report; the order for one host
skip_slices.py                     continue without a host
refusals.py                        what is said no with
"""
