"""What abusive clients cost a server: memory, and the response times of everyone else.

attacks    the abusive clients; they run in a process of their own
probes     everyone else: agents that poll, a monitor, a person
measure    the figures of one case
results    the figures and their bounds
report     the table
"""
