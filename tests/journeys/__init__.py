"""Whole workflows through kernel, folds and control; at the end replay must agree."""
