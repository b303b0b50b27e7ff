"""A host in a rollout: its states, its machine, what its agent reports, and its rows.

states, facts             the vocabulary
transitions, machine      ``step``: one pure function, for the control plane and for the agent
orders, activation, probes, transition_steps
                          parts of the machine: orders, the switch, the soak, and shared steps
effects                   the effects of a step
agent_side                what an agent does with its own copy of the record
protocol, report_json     the messages between agent and server; reports as JSON
rows, folds               records, open probe failures, orders; the control plane's side of a step
slices                    cancel an order, expire a deadline; reports are in ``rollouts``
refusals                  the errors

It imports no other noun, because the agent runs it.
"""
