"""The simulator: a seeded fleet under a virtual clock, against the production control plane.

rates               how often things go wrong, and how long they take
control_plane       store, lanes, dispatcher and timers, without threads
second_dispatcher   another process that dispatches on the same log
agents              hosts that run the production machine and act on its effects
world               the clock, the network between them, and an operator
invariants          a second fold of every fact, and what must always hold
fleet_model         what the facts say of the fleet, for the invariants
rollout_model       one rollout of it, host by host
violations          how a broken invariant is reported
forecast            when each wave would end, and what would stop it

Equal seeds give equal traces: nothing here reads a clock or draws a number that is not seeded.
"""
