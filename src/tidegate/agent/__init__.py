"""The agent of a host: takes orders, switches, probes, rolls back by itself, and reports.

config.py, errors.py           what an operator sets; what goes wrong
identity.py, client.py         the host's key; HTTP, signed
host_facts.py                  what this machine is
journal.py                     twins and unsent reports on disk
manifest.py                    whether an order agrees with the signed manifest
content.py, drivers.py         what is fetched and verified; how it becomes what runs
probes.py, probe_schedule.py   whether it is healthy, and when to ask
order_runs.py                  what follows from what: one thread, no network
soaks.py                       the part of it that watches probes after a switch
loop.py                        the threads around it
command.py                     ``tidegate agent``
install.py, install_report.py  ``tidegate agent install``
program.py                     ``tidegate-agent``, where no server is installed

It runs the control plane's own machine of a host (``domain.hosts``), so that both sides agree.
"""
