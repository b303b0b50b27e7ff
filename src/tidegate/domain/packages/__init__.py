"""Package revisions: from Draft through review to Published, and their deletion.

names, states     repository / package path / workspace; the states of a revision
lifecycle         transitions and mutability, as data
facts             the events
rows, folds       revisions, links between them, owners, tombstones; how facts change them
slices            repositories, and creating a revision
updates, approvals, deletions     one slice per command
bulk              delete or import all revisions of a package at once
merging, origins  how an upgrade merges three manifests; where content comes from
permissions       which steps a command takes, on which repository
documents         a revision as clients see it
history           the timeline and the approvals, from the log
refusals          the errors
"""
