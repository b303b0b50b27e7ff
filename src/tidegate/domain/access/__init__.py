"""Who may do what: users, roles, API tokens, and the security events of an installation.

roles           verbs, roles and scopes, as data
steps           every verb of an operator and the permission that it needs
principals      who is asking and what they may do; callers: the same, with the request's context
scopes          what a grant may be limited to
facts           the events; users are named by id, never by a person's name
rows, folds     the rows, and how facts change them
slices          add, grant, revoke, disable, erase, tokens
erasable_rows   names, credentials, sessions: rows without history, which can be erased
refusals        the errors

No fact and no folded row holds a secret, its hash, or a name.
"""
