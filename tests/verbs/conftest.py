"""Servers that tests of verbs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.verbs.doors import SharedServers


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServers]:
    """Servers for the verbs of a module that are refused."""
    servers = SharedServers(tmp_path_factory.mktemp("shared"))
    yield servers
    servers.close()
