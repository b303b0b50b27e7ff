"""Gates: what an order must pass before it goes out, and why it does not.

sight       the rows that gates look at, and what they answer with
edges       what one channel edge says of a release
checks      each gate, in order
passes      a pass over a rollout: orders, skips, what to say in the log
explained   every gate's verdict, for whoever asks
"""
