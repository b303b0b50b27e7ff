"""Commands that run on this machine: they start a server, worker or agent, or read the data.

A module is imported when its command is used, and imports heavy modules when the command runs.
"""

from __future__ import annotations
