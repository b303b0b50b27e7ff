"""Rollouts: a release on its way to the hosts of a channel, wave by wave.

states.py, facts.py, names.py      the vocabulary; ids: ``channel@ref`` and ``channel@ref~n``
transitions.py, machine.py         which events a state accepts, and what they do: ``step``
host_steps.py, counted_state.py    the steps for events of hosts; the state that the counts give
tallies.py                         hosts counted by wave and state
effects.py                         the four effects of a step
rows.py, folds.py                  rollouts, tallies, gates; channels fold the quarantine
slices.py                          pause, resume, prune, gates
wave_slices.py                     start, continue or skip waves
promotion.py                       promote a release: pin and rollout in one commit
clearance.py                       resume, waive or abandon a rollout that was stopped
preconditions.py                   the checks that reports, orders and skips share
report_slices.py, order_slices.py  what agents report; the order for one host
skip_slices.py                     continue without a host
refusals.py                        the errors
"""
