"""The verbs of `tidegate rev`: draft, edit, review and read package revisions."""
