"""What a server costs over HTTP: reports, polls, a whole rollout, subscribers, and memory.

prepared_data    a data directory with hosts, an open rollout and a user who may read
signing          requests of agents as bytes, signed before they are sent
calls            connections that send such requests one by one, and time the responses
server           `tidegate serve` as a process: its CPU and its memory
metered          the same, with the CPU of each frame of a request
measure          the figures
results          the figures, and the floors
report           tables for people, its part of docs/performance.md
"""
