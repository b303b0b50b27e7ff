"""Tidegate is a release control plane: facts and the rows folded from them, in one commit."""

__version__ = "0.1.0"
