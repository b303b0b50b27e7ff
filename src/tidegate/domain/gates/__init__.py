"""Gates: what an order must pass before it goes out, and why it does not.

inputs           the rows that gates look at, and the answers
context          one pass's view of a rollout; a gate and its block
edges            whether one channel edge lets a release through
rollout_checks   the gates of the rollout and its channel
host_checks      the gates of each host
overrides        gates that a rollout may pass
checks           all gates, in order
dispatch_pass    a pass over a rollout: orders, skips, what to record in the log
explain          every gate's verdict, for people
waits            what a rollout waits for; host_waits: its hosts; gate_waits: hosts at a gate
remedies         the commands that end a wait
whom_to_ask      which of them a person may run, and whom to ask for the others
attention        whether a shut gate needs a person
earliest         when each wave of a plan could start
automation       automatic promotion and rollback
"""
