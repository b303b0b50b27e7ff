"""The benches stay runnable: their harness and adapters, at sizes that take a moment."""
