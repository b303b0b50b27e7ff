"""What a server costs over HTTP: reports, polls, a whole rollout, subscribers, and memory.

harbour    a data directory with hosts, an open rollout and somebody who may read
signing    requests of agents as bytes, signed before they are sent
calls      connections that send such requests one after the other, and time the answers
server     `tidegate serve` as a process: its CPU and its memory
metered    the same, with the CPU of each frame of a request
measure    the figures
results    what was found, and what was promised
report     tables for people, its part of docs/performance.md
"""
