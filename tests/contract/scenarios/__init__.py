"""Contract scenarios 06 to 09 of seed 000 as data, and the runner that any engine must satisfy."""
