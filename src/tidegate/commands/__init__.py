"""Commands that run on this machine: they start what ``main`` composes, or look at its data.

Each module is imported when its command is asked for, and imports what is heavy when it runs.
"""

from __future__ import annotations
