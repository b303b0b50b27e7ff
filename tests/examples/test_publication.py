"""The publication example on every engine: its output at each step."""

from __future__ import annotations

from contextlib import closing

import pytest

from examples.publication import app
from tests.contract.address import Address
from tests.examples.racing import connector

SAID = [
    "/a 'first': published; readers get 'first'",
    "/a 'second': published; readers get 'second'",
    "/a 'expired': lease_lost; readers get 'second'",
    "/a 'stolen': lease_lost; readers get 'second'",
    "/a 'third': published; readers get 'third'",
    "/a 'older': stale_generation; readers get 'third'",
    "/b 'one': published; readers get 'one'",
    "/b 'two': published; readers get 'two'",
    "/b 'three': published; readers get 'three'",
]


@pytest.mark.req("PB-11")
def test_walks_through_both_recipes_and_every_late_writer(
    address: Address | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """A, B, expired holder, stolen lease, older generation, rollback."""
    with closing(connector(address, app.FOLDS)()) as store, app.newsroom(store) as room:
        app.walk(room)

    *said, rolled_back, generations, replay = capsys.readouterr().out.splitlines()
    assert said == SAID
    assert rolled_back.endswith("readers get 'one'")
    assert generations == "generations of /b: 3"
    assert replay == "differences after replay: []"
