"""Who may do what: users, roles, API tokens, and the security events of an installation.

roles           verbs, roles and scopes, as data
steps           every verb of an operator and the permission that it needs
principals      who asks, and what they may do; callers: with what came along with the request
scopes          what a grant may be limited to
facts           what happens; users are named by id, never by a person's name
rows, folds     what the facts add up to
slices          add, grant, revoke, disable, erase, tokens
erasable_rows   names, credentials, sessions: rows without history, which can be erased
refusals        what a request is refused with

No fact and no folded row holds a secret, its hash, or a name.
"""
