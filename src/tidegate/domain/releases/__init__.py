"""The release registry: which release each scope is pinned to, and by which authority.

rows.py        ACTUAL, EVENT#, EVIDENCE#, COMMAND#
facts.py       the events
folds.py       how facts change the rows
slices.py      register, transition, retire
evidence.py    keep evidence, import a manifest
registry.py    all of these commands under one set of rules about evidence
catalog.py     the releases that may be pinned
from_packages.py   published revisions as such releases
generic.py     the same transition for rows of your own

An effect outside that a change needs is an intent of ``domain.outbox`` in the same commit.
"""
