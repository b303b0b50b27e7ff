"""The demo: a living installation with a simulated fleet, and people who play the whole story.

    fleet      300 hosts: the production machine of a host, in one thread, through the real lanes
    plot       who drafts, approves and promotes what, and what goes wrong
    receiver   a webhook's receiver that is down for a while
    entrance   the link that signs the visitor in, once
    stage      puts it together with a real server and a real worker

Nothing of it is scripted into rows: people give commands, hosts report, machines decide. Time is
real; it is the waits that are short. A soak of ten minutes takes ten seconds at 60×.
"""

from __future__ import annotations
