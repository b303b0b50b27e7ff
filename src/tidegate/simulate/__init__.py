"""The simulator: a seeded fleet under a virtual clock, against the production control plane.

rates       how often things go wrong, and how long they take
plant       the control plane: store, lanes, dispatcher, timers, without threads
agents      hosts that run the production machine and act on its effects
world       the clock, the network between them, and an operator
watch       a second fold of every fact, and the invariants
forecast    when each wave would end, and what would stop it

Equal seeds give equal traces: nothing in here reads a clock or tosses a coin that is not seeded.
"""
