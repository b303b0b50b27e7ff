"""Repositories over HTTP: versions, idempotency, pages."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from tests.api.serving import SECONDS_MAX, Served
from tidegate.domain.access.roles import Grant, Role


def test_creates_a_repository_and_returns_its_position_and_version(served: Served) -> None:
    admin = served.admin

    made = admin.post("/v1/repositories", json={"name": "blueprints", "quorum": 2})

    assert made.status_code == 201
    body = made.json()
    assert (body["name"], body["quorum"]) == ("blueprints", 2)
    assert made.headers["etag"].startswith(f'"{body["version"]}-')
    assert int(made.headers["tidegate-position"]) == body["version"]


def test_answers_304_while_nothing_changed(served: Served) -> None:
    admin = served.admin
    first = admin.get("/v1/repositories/default")

    again = admin.get("/v1/repositories/default", headers={"if-none-match": first.headers["etag"]})

    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]


def test_requires_the_version_that_the_client_read(served: Served) -> None:
    admin = served.admin
    seen = admin.get("/v1/repositories/default").headers["etag"]

    missing = admin.patch("/v1/repositories/default", json={"quorum": 2})
    changed = admin.patch(
        "/v1/repositories/default", json={"quorum": 2}, headers={"if-match": seen}
    )
    stale = admin.patch("/v1/repositories/default", json={"quorum": 3}, headers={"if-match": seen})

    assert (missing.status_code, missing.json()["code"]) == (428, "version_required")
    assert changed.status_code == 200
    assert (stale.status_code, stale.json()["code"]) == (409, "version_conflict")
    assert stale.json()["current"] == changed.json()["version"]


@pytest.mark.parametrize("header", ["17", '"x"', "*", 'W/"17"', '"1", "2"', '"99999999999999999"'])
def test_refuses_an_if_match_without_a_version(served: Served, header: str) -> None:
    answer = served.admin.patch(
        "/v1/repositories/default", json={"quorum": 2}, headers={"if-match": header}
    )

    assert (answer.status_code, answer.json()["field"]) == (400, "If-Match")


def test_a_repeat_gets_the_first_response_and_another_body_is_refused(served: Served) -> None:
    admin = served.admin
    headers = {"idempotency-key": "key-1"}

    first = admin.post("/v1/repositories", json={"name": "one"}, headers=headers)
    again = admin.post("/v1/repositories", json={"name": "one"}, headers=headers)
    other = admin.post("/v1/repositories", json={"name": "two"}, headers=headers)

    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert again.headers["tidegate-position"] == first.headers["tidegate-position"]
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")
    assert admin.get("/v1/repositories/two").status_code == 404


def test_a_repeat_gets_the_first_response_although_the_repository_changed(served: Served) -> None:
    admin = served.admin
    first = admin.post("/v1/repositories", json={"name": "one"}, headers={"idempotency-key": "k"})
    etag = first.headers["etag"]
    admin.patch("/v1/repositories/one", json={"quorum": 9}, headers={"if-match": etag})

    again = admin.post("/v1/repositories", json={"name": "one"}, headers={"idempotency-key": "k"})

    assert (again.json(), again.headers["etag"]) == (first.json(), etag)


def test_loses_none_of_many_concurrent_updates(served: Served) -> None:
    """Each 2xx changed the repository and each 409 did not, so the sum is exact."""
    admin = served.admin
    admin.post("/v1/repositories", json={"name": "counted", "quorum": 0})
    url = "/v1/repositories/counted"

    def raise_it(_: int) -> int:
        with httpx2.Client(
            base_url=served.url, headers=admin.headers, timeout=SECONDS_MAX
        ) as client:
            for _ in range(3):
                seen = client.get(url)
                answer = client.patch(
                    url,
                    json={"quorum": seen.json()["quorum"] + 1},
                    headers={"if-match": seen.headers["etag"]},
                )
                if answer.status_code == 200:
                    return 1
                assert answer.status_code == 409
        return 0

    with ThreadPoolExecutor(8) as pool:
        raised = sum(pool.map(raise_it, range(12)))

    assert raised > 0
    assert admin.get(url).json()["quorum"] == raised


def test_idempotency_keys_of_two_people_do_not_collide(served: Served) -> None:
    other = served.as_role(Role.SECURITY_ADMIN)
    headers = {"idempotency-key": "same"}

    one = served.admin.post("/v1/repositories", json={"name": "one"}, headers=headers)
    two = other.post("/v1/repositories", json={"name": "two"}, headers=headers)

    assert (one.status_code, two.status_code) == (201, 201)


def test_reads_a_list_page_by_page(served: Served) -> None:
    admin = served.admin
    for name in "abcde":
        admin.post("/v1/repositories", json={"name": name})

    names, cursor = [], ""
    for _ in range(10):
        page = admin.get("/v1/repositories", params={"limit": 2, "next": cursor}).json()
        names += [item["name"] for item in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break

    assert names == ["a", "b", "c", "d", "default", "e"]


def test_refuses_a_forged_or_foreign_cursor(served: Served) -> None:
    admin = served.admin
    admin.post("/v1/repositories", json={"name": "a"})
    cursor = admin.get("/v1/repositories", params={"limit": 1}).json()["next"]

    for wrong in ("AAAA", "!", cursor[:-2] + "xx", "ÿ"):
        answer = admin.get("/v1/repositories", params={"next": wrong})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_cursor"), wrong
    assert admin.get("/v1/users", params={"next": cursor}).json()["code"] == "invalid_cursor"


def test_lists_only_repositories_that_the_caller_may_read(served: Served) -> None:
    served.admin.post("/v1/repositories", json={"name": "secret"})
    viewer = served.as_role(Grant(Role.VIEWER, "repository:default"))

    listed = viewer.get("/v1/repositories").json()["items"]

    assert [item["name"] for item in listed] == ["default"]
    assert viewer.get("/v1/repositories/default").status_code == 200
    assert viewer.get("/v1/repositories/secret").status_code == 403


def test_waits_for_a_position_and_reports_a_timeout(served: Served) -> None:
    admin = served.admin
    position = admin.post("/v1/repositories", json={"name": "a"}).headers["tidegate-position"]

    reached = admin.get("/v1/repositories/a", params={"min_position": position})

    assert reached.status_code == 200
