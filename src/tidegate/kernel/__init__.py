"""Facts and folds, one commit: the part of Tidegate that knows no domain."""
