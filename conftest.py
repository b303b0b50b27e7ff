"""Registers our pytest plugins for every test of the tree, those of the examples included."""

pytest_plugins = ("tests.reqs", "tests.suite_durations", "tests.quick", "tests.servers.fixtures")
