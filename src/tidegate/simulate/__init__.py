"""The simulator: a seeded fleet under a virtual clock, against the production control plane.

rates               how often things go wrong, and how long they take
control_plane       store, lanes, dispatcher and timers, without threads
second_dispatcher   another process that dispatches on the same log
agents              simulated hosts that run the production state machine
world               the clock, the network between them, and an operator
invariants          a second fold of every fact, and the checks after every commit
fleet_model         a plain model of the fleet, which the checks compare with the rows
rollout_model       one rollout of that model, host by host
violations          how a broken invariant is reported
forecast            when each wave would end, and what would stop it

Equal seeds give equal traces: nothing here reads a real clock or an unseeded random number.
"""
