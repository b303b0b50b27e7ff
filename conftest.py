"""Registers our pytest plugins for every test of the tree, those of the examples included."""

from hypothesis import HealthCheck, settings

pytest_plugins = ("tests.reqs", "tests.parts", "tests.servers.fixtures")

# A busy machine makes generation slow; that is no finding about the code.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")
