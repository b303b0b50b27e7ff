"""Who may do what: users, roles, API tokens, and the security events of an installation.

roles         verbs, roles and scopes, as data
facts         what happens; users are named by id, never by a person's name
rows          what stands: folds of the facts
slices        set up, add, grant, revoke, disable, erase, tokens
kept          names, credentials, sessions: rows without history, which can be erased
refusals      what can be said against a request

No fact and no folded row holds a secret, its hash, or a name.
"""
