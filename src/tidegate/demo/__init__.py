"""The demo: a running installation with a simulated fleet, and people who use it.

    fleet              300 simulated hosts in one thread, on the production state machine
    people             the users of the demo, who call the operations of the installation
    story              what the users draft, approve and promote, and what goes wrong
    webhook_receiver   a receiver of webhooks that is down for a while
    sign_in            the link that signs the visitor in, once
    servers            starts all of it with a real server and a real worker

The demo writes no rows itself: people give commands, hosts report, machines decide. The clock is
real; only waits are shorter. A soak of ten minutes takes ten seconds at 60×.
"""

from __future__ import annotations
