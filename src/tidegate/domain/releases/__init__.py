"""The release registry: which release each scope is pinned to, by which authority, and how so.

rows.py        ACTUAL, EVENT#, EVIDENCE#, COMMAND#
facts.py       what happens
folds.py       how facts become rows
slices.py      register, transition, retire
evidence.py    keep evidence, import a manifest
registry.py    all of these commands under one set of rules about evidence
catalog.py     the releases that may be pinned: what a publisher offers
from_packages.py   published revisions as such releases; composed where packages are
generic.py     the same transition for rows of your own

An effect that a change needs is an intent of ``domain.outbox`` in the same commit.
"""
