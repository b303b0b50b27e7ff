"""Saves facts and the rows folded from them in one commit; knows nothing about releases."""
