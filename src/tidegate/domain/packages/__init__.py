"""Package revisions: from Draft by review to Published, and to their end (seed 001).

names         repository / package path / workspace, dotted names
merging       how an upgrade merges three manifests (domain.content)
lifecycle     states, transitions and mutability, as data
facts         what happens
rows, links   what stands: folds of the facts
repositories, creation, updates, approvals, deletions      one slice per command
wholes        all of a package at once: delete, import
permissions   what each step asks of who sends it; imported by callers, for it knows roles
documents     a revision as clients see it
history       what the log tells: timeline, approvals, lineage
refusals      what can be said against a request
"""
