"""A host in a rollout: its states, its machine, what its agent reports, and its rows.

states.py, facts.py   the words
table.py, machine.py  ``step``: one pure function, for the control plane and for the agent
orders.py, activation.py, probes.py, moves.py
                      what the steps do: orders, the switch, the soak, and what they share
effects.py            what a step asks for
wire.py               reports as agents send them
rows.py, folds.py     records, open probe failures, orders; the control plane's side of a step
slices.py             cancel an order, expire a deadline; the rest is in ``domain.rollouts.reports``
refusals.py           what is said no with

It imports no other noun, because the agent runs it.
"""
