"""Servers that several tests of verbs use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.verbs.doors import SharedServers


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServers]:
    """The servers for a module's verbs that are refused."""
    servers = SharedServers(tmp_path_factory.mktemp("shared"))
    yield servers
    servers.close()
