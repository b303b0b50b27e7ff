"""Publications: a body is swapped whole, under a lease, so that no late writer is ever seen.

acquire LOCK ─▶ render, write the body ─▶ one commit ─▶ readers follow META

recipe A, in place      META put,                            LOCK deleted
recipe B, pointer swap  VER#<id> put if absent, META set,    LOCK deleted
rollback                META set back to some VER#<id>,      LOCK deleted
invalidate              META no longer fresh,                LOCK deleted
collect                 rows past their ttl deleted
"""
