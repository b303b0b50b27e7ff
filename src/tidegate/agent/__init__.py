"""The agent of a host: takes orders, switches, probes, goes back by itself, and says so.

config.py, faults.py       what an operator sets; what goes wrong
identity.py, client.py     the host's key; HTTP, signed
journal.py                 twins and unsent reports on disk
manifest.py                whether an order agrees with what is signed
content.py, activate.py    what is fetched and verified; how it becomes what runs
probes.py, lookout.py      whether it is well, and when to ask
passages.py                what follows from what: one thread, no network
loop.py                    the threads around it
command.py                 ``tidegate agent``

It runs the control plane's own machine of a host (``domain.hosts``), so that both sides agree.
"""
