"""Publications: documents that are replaced as a whole, under a lease that excludes late writers.

acquire LOCK ─▶ render, write the body ─▶ one commit ─▶ readers follow META

recipe A, in place      META put,                            LOCK deleted
recipe B, pointer swap  VER#<id> put if absent, META set,    LOCK deleted
rollback                META set back to some VER#<id>,      LOCK deleted
invalidate              META no longer fresh,                LOCK deleted
collect                 rows past their ttl deleted
"""
