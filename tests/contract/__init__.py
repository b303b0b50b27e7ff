"""The store contract, run on every engine through several handles, threads and processes."""
