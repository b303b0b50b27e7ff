"""The agent of a host: takes orders, switches, probes, rolls back on failure, and reports.

config.py, errors.py           the operator's settings; the agent's errors
identity.py, client.py         the host's key; HTTP, signed
host_facts.py                  system, kernel and addresses of this machine
journal.py                     host records and unsent reports on disk
manifest.py                    whether an order agrees with the signed manifest
content.py, drivers.py         fetch and verify artifacts; switch to them
probes.py, probe_schedule.py   health checks, and when each is due
order_runs.py                  the life of an order: one thread, no network
soaks.py                       its soak: probes after the switch
loop.py                        the threads around it
command.py                     ``tidegate agent``
install.py, install_report.py  ``tidegate agent install``
program.py                     ``tidegate-agent``, where no server is installed

The agent keeps a copy of the host's record for each rollout: its twin. Both sides step it with the
same state machine (``domain.hosts``), so that they agree.
"""
