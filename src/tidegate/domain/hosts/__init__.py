"""A host in a rollout: its states, its machine, what its agent reports, and its rows.

states, facts             the words
transitions, machine      ``step``: one pure function, for the control plane and for the agent
orders, activation, probes, transition_steps
                          what the steps do: orders, the switch, the soak, and what they share
effects                   what a step asks for
agent_side                what an agent does with its own copy of the record
protocol, report_json     the messages between agent and server; reports as JSON
rows, folds               records, open probe failures, orders; the control plane's side of a step
slices                    cancel an order, expire a deadline; reports are in ``rollouts``
refusals                  what a report or a command is refused with

It imports no other noun, because the agent runs it.
"""
