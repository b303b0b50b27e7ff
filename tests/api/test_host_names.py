"""A server accepts requests only under its own host names."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.api.raw_connection import POLL, RawConnection, raw
from tests.api.served_fleet import serve_fleet
from tests.api.serving import Served, serving
from tidegate.config import Settings
from tidegate.web.authentication import check_origin
from tidegate.web.host_names import HostNames
from tidegate.web.problems import CrossSite, MisdirectedRequest
from tidegate.web.routing import RawRequest


@pytest.mark.parametrize("path", ["/livez", "/v1/me", "/", "/nowhere", "/v1/agent/dispatch"])
def test_a_request_under_a_foreign_name_is_refused(shared: Served, path: str) -> None:
    answer = shared.admin.get(path, headers={"host": "evil.example"})

    assert answer.status_code == 421
    if path.startswith("/v1"):
        assert answer.json()["code"] == "misdirected_request"
        assert answer.json()["detail"] == (
            "This server is not known as 'evil.example'. Set public_url to the address that"
            " clients use, or list the name in host_names."
        )


@pytest.mark.parametrize(
    "host",
    ["gate.example", "GATE.example:443", "gate.example.", "inside.example", "alias.example:8420"],
)
def test_it_answers_under_its_public_name_and_the_names_of_the_setting(
    tmp_path: Path, host: str
) -> None:
    more = "inside.example, alias.example"
    with serving(tmp_path / "data", public_url="https://gate.example", host_names=more) as served:
        assert served.client().get("/livez", headers={"host": host}).status_code == 200


def test_it_answers_on_loopback_and_at_the_address_where_the_connection_arrived() -> None:
    names = HostNames(Settings(data="x", host="0.0.0.0"))
    for host in (b"127.0.0.1:8420", b"localhost", b"[::1]:8420", b"192.0.2.7:8420", None):
        names.check(host, "192.0.2.7")

    for host in (b"192.0.2.8", b"localhost.evil.example", b"", b"127.0.0.1.evil.example", b"a, b"):
        with pytest.raises(MisdirectedRequest):
            names.check(host, "192.0.2.7")
    with pytest.raises(MisdirectedRequest):
        names.check(b"192.0.2.7:8420", "192.0.2.9")  # accepted at the other address


def test_the_fast_path_refuses_a_foreign_name_too(tmp_path: Path) -> None:
    with serve_fleet(tmp_path / "data", fast_path=True) as fleet:
        agent = fleet.enroll("web-77")
        with closing(RawConnection(fleet)) as wire:
            wire.send(raw(agent, "GET", POLL, host="evil.example"))
            refused, _, _ = wire.answer()
            wire.send(raw(agent, "GET", POLL))
            answered, _, _ = wire.answer()

    assert (refused, answered) == (421, 204)


@pytest.mark.parametrize(
    ("public_url", "origin"),
    [
        ("https://gate.example:443", b"https://gate.example"),
        ("http://gate.example:80", b"http://gate.example"),
        ("https://Gate.example", b"https://gate.example"),
    ],
)
def test_a_public_url_with_the_usual_port_is_the_origin_that_browsers_send(
    public_url: str, origin: bytes
) -> None:
    settings = Settings(data="x", public_url=public_url)

    check_origin(RawRequest("POST", b"/v1/x", b"", {b"origin": origin}, "", b""), settings)

    scheme, _, name = origin.partition(b"://")
    other_scheme = (b"http" if scheme == b"https" else b"https") + b"://" + name
    for foreign in (origin + b":8443", other_scheme, scheme + b"://evil.example"):
        with pytest.raises(CrossSite):
            check_origin(RawRequest("POST", b"/v1/x", b"", {b"origin": foreign}, "", b""), settings)
