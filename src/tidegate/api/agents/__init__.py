"""The requests of agents, with a fast path for the two frequent ones."""
