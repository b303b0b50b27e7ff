"""One contract, every engine: what a store does, through several handles, threads and processes."""
