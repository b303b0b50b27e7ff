"""Package revisions: from Draft by review to Published, and to their end.

names, states     repository / package path / workspace; the states of a revision
lifecycle         transitions and mutability, as data
facts             what happens
rows, folds       revisions, links between them, owners, tombstones: what the facts add up to
slices            repositories, and creating a revision
updates, approvals, deletions     one slice per command
bulk              all of a package at once: delete, import
merging, origins  how an upgrade merges three manifests; where content comes from
permissions       which steps a command takes, on which repository
documents         a revision as clients see it
history           what the log says: timeline, approvals
refusals          what a request is refused with
"""
