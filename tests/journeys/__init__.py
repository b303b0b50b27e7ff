"""Whole paths through kernel, folds and control, ended by a replay that must agree."""
