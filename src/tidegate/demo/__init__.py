"""The demo: a running installation with a simulated fleet, and people who use it.

    fleet              300 hosts: the production machine of a host, in one thread
    people             the users of the demo, who call the operations of the installation
    story              who drafts, approves and promotes what, and what goes wrong
    webhook_receiver   a receiver of webhooks that is down for a while
    sign_in            the link that signs the visitor in, once
    servers            starts all of it with a real server and a real worker

Nothing is written into rows: people give commands, hosts report, machines decide. Time is real;
only the waits are short. A soak of ten minutes takes ten seconds at 60×.
"""

from __future__ import annotations
