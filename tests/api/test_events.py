"""The log as clients follow it: pages, filters, long poll, server-sent events."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from threading import Semaphore
from typing import Any

import httpx2
import pytest

from tests.api.serving import ADMIN, Served, serving
from tidegate.api.feed import tail
from tidegate.domain.access.roles import Role
from tidegate.kernel.model import Query
from tidegate.web import inputs as web_inputs

STREAM = {"accept": "text/event-stream"}
SECONDS_MAX = 60.0


def made(served: Served, *names: str) -> list[int]:
    """Create repositories one after the other; return their positions."""
    admin = served.admin
    answers = [admin.post("/v1/repositories", json={"name": name}) for name in names]
    return [int(answer.headers["tidegate-position"]) for answer in answers]


def parts(response: httpx2.Response) -> Iterator[dict[str, str]]:
    """The events of a stream; comments are skipped."""
    found: dict[str, str] = {}
    for line in response.iter_lines():
        if line:
            name, _, value = line.partition(": ")
            found[name] = value
            continue
        if "data" in found:
            yield found
        found = {}


def followed(
    client: httpx2.Client, count: int, begun: Semaphore | None = None, **options: Any
) -> list[dict[str, Any]]:
    """Read this many events of a stream; release ``begun`` once the server has fixed its start."""
    headers = {**STREAM, **options.pop("headers", {})}
    with client.stream("GET", "/v1/events", headers=headers, **options) as response:
        assert response.headers["content-type"] == "text/event-stream"
        if begun is not None:
            begun.release()
        return [json.loads(part["data"]) for part in islice(parts(response), count)]


def test_returns_events_as_cloudevents(served: Served) -> None:
    (position,) = made(served, "a")

    page = served.admin.get("/v1/events", params={"after": position - 1}).json()

    (event,) = page["items"]
    assert page["position"] == position
    assert (event["specversion"], event["id"], event["source"]) == (
        *("1.0", str(position)),
        "/v1/events",
    )
    assert event["type"] == "tidegate.RepositoryCreated"
    assert (event["kind"], event["tags"]) == ("package", ["repository:a"])
    assert event["data"]["repository"] == "a"
    assert event["actor"].startswith("user_")


def test_reads_the_whole_log_page_by_page(served: Served) -> None:
    made(served, *"abcdefg")
    admin = served.admin

    seen, after = [], 0
    while page := admin.get("/v1/events", params={"after": after, "limit": 3}).json():
        if not page["items"]:
            break
        seen += [event["position"] for event in page["items"]]
        after = page["position"]

    whole = served.installation.log.feed(after=0, limit=500)
    assert seen == [event.position for event in whole]


def test_filters_by_type_and_tag_and_refuses_unknown_ones(served: Served) -> None:
    made(served, "a", "b")
    admin = served.admin

    def found(**params: Any) -> list[str]:
        items = admin.get("/v1/events", params=params).json()["items"]
        return [item["data"]["repository"] for item in items]

    assert found(type="RepositoryCreated") == ["default", "a", "b"]
    assert found(tag="repository:b") == ["b"]
    assert found(type="RepositoryChanged", tag="repository:b") == []
    assert admin.get("/v1/events", params={"type": "Nonsense"}).status_code == 400
    assert admin.get("/v1/events", params={"tag": "nonsense:b"}).status_code == 400


def test_filters_by_the_longest_tag(served: Served) -> None:
    rollout = f"{'c' * 63}@{'r' * 128}"

    answer = served.admin.get("/v1/events", params={"tag": f"rollout_id:{rollout}"})

    assert (answer.status_code, answer.json().get("items")) == (200, [])


def test_shows_acknowledged_events_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if nothing has woken the reader that follows the log."""
    monkeypatch.setattr(tail, "POLL_SECONDS", 3_600.0)
    with serving(tmp_path / "data") as served:
        served.installation.listeners.clear()
        for name in "abc":
            (position,) = made(served, name)

            page = served.admin.get("/v1/events", params={"after": position - 1}).json()

            assert [item["position"] for item in page["items"]] == [position]


def test_hides_security_events_from_users_who_are_not_auditors(served: Served) -> None:
    viewer, auditor = served.as_role(Role.VIEWER), served.as_role(Role.AUDITOR)

    def kinds(client: httpx2.Client) -> set[str]:
        items = client.get("/v1/events", params={"limit": 500}).json()["items"]
        return {item["kind"] for item in items}

    assert kinds(viewer) == {"package"}
    assert kinds(auditor) == {"package", "security"}


def test_shows_the_log_as_of_a_position_and_a_time(served: Served) -> None:
    first, second = made(served, "a", "b")
    admin = served.admin
    all_of_them = admin.get("/v1/events", params={"limit": 500}).json()["items"]
    at = next(item["time"] for item in all_of_them if item["position"] == first)

    def last(as_of: object) -> int:
        page = admin.get("/v1/events", params={"as_of": str(as_of), "limit": 500}).json()
        position: int = page["items"][-1]["position"]
        return position

    assert (last(first), last(second)) == (first, second)
    assert last(at) == first
    assert admin.get("/v1/events", params={"as_of": "yesterday"}).status_code == 400


def test_waits_for_new_events(served: Served) -> None:
    (position,) = made(served, "a")
    admin = served.admin
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(
            admin.get, "/v1/events", params={"after": position, "wait": 60}, timeout=2 * SECONDS_MAX
        )
        time.sleep(0.2)
        made(served, "b")

        page = waiting.result().json()

    assert "b" in [item["data"].get("repository") for item in page["items"]]


def test_stops_waiting_in_time(served: Served) -> None:
    (position,) = made(served, "a")

    head = served.admin.get("/v1/events", params={"after": position, "limit": 500}).json()
    page = served.admin.get(
        "/v1/events", params={"after": head["position"], "wait": 1, "type": "RevisionCreated"}
    ).json()

    assert page["items"] == []


def test_streams_past_and_new_events(served: Served) -> None:
    (position,) = made(served, "a")
    admin = served.admin
    begun = Semaphore(0)
    with ThreadPoolExecutor(1) as pool:
        params = {"after": position - 1, "type": "RepositoryCreated"}
        following = pool.submit(followed, admin, 3, begun, params=params)
        assert begun.acquire(timeout=SECONDS_MAX)
        made(served, "b", "c")

        found = following.result()

    assert [event["data"]["repository"] for event in found] == ["a", "b", "c"]


def test_resumes_a_stream_after_the_last_event_that_was_seen(served: Served) -> None:
    positions = made(served, "a", "b", "c")
    admin = served.admin

    found = followed(
        admin,
        2,
        params={"after": 0, "type": "RepositoryCreated"},
        headers={"last-event-id": str(positions[0])},
    )

    assert [event["position"] for event in found] == positions[1:]
    bad = admin.get("/v1/events", headers={**STREAM, "last-event-id": "x"})
    assert (bad.status_code, bad.json()["field"]) == (400, "Last-Event-ID")


def test_starts_a_stream_without_a_position_at_the_end(served: Served) -> None:
    made(served, "a")
    admin = served.admin
    begun = Semaphore(0)
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(followed, admin, 1, begun, params={"type": "RepositoryCreated"})
        assert begun.acquire(timeout=SECONDS_MAX)
        made(served, "b")

        (found,) = following.result()

    assert found["data"]["repository"] == "b"


def test_catches_up_from_the_store_if_the_ring_is_too_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "RING_MAX", 4)
    monkeypatch.setattr(web_inputs, "LIMIT_MAX", 3)
    with serving(tmp_path / "data") as served:
        names = [f"r{number}" for number in range(12)]
        made(served, *names)

        found = followed(served.admin, 13, params={"after": 0, "type": "RepositoryCreated"})

        assert [event["data"]["repository"] for event in found] == ["default", *names]


def commit_during_the_next_read(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Create the repository ``late`` after the next read of the store, before its result is used.
    The server knows of it by then.
    """
    log = served.installation.log
    read = log.events
    left = ["late"]

    def read_then_commit(query: Query, **options: Any) -> Any:
        found = read(query, **options)
        while left:
            (position,) = made(served, left.pop())
            page = served.admin.get("/v1/events", params={"after": position - 1}).json()
            assert page["position"] >= position
        return found

    monkeypatch.setattr(log, "events", read_then_commit)


LATE: dict[str, Any] = {"after": 0, "tag": "repository:late"}


def test_streams_an_event_that_is_committed_while_the_store_is_read(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_during_the_next_read(served, monkeypatch)

    (found,) = followed(served.client(served.token(ADMIN)), 1, params=LATE)

    assert found["data"]["repository"] == "late"


def test_answers_a_long_poll_with_what_is_committed_while_the_store_is_read(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_during_the_next_read(served, monkeypatch)

    page = served.client(served.token(ADMIN)).get("/v1/events", params={**LATE, "wait": 5}).json()

    assert [item["data"]["repository"] for item in page["items"]] == ["late"]


def test_ends_open_streams_when_the_server_stops(tmp_path: Path) -> None:
    """Uvicorn would wait ten seconds for an open stream and then cut it."""
    begun = Semaphore(0)
    with ThreadPoolExecutor(1) as pool:
        with serving(tmp_path / "data") as served:
            admin = served.admin
            following = pool.submit(followed, admin, 10_000, begun, params={"after": 0})
            assert begun.acquire(timeout=SECONDS_MAX)
            served.close = lambda: None  # type: ignore[method-assign]
        found = following.result()  # reading a cut stream raises
        admin.close()

    assert found


def test_serves_many_subscribers_from_one_reader(served: Served) -> None:
    """The log is read once per change, not once per subscriber."""
    admin = served.admin
    reads: list[int] = []
    feed = served.installation.log.feed

    def counted(**options: Any) -> Any:
        reads.append(1)
        return feed(**options)

    begun = Semaphore(0)
    with ThreadPoolExecutor(40) as pool:
        params = {"type": "RepositoryCreated"}
        following = [pool.submit(followed, admin, 5, begun, params=params) for _ in range(40)]
        for _ in following:
            assert begun.acquire(timeout=SECONDS_MAX)
        served.installation.log.feed = counted  # type: ignore[method-assign]
        made(served, *"abcde")
        found = [item.result() for item in following]

    assert [len(item) for item in found] == [5] * 40
    assert len(reads) < 40
