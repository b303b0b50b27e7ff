"""Sorted lists: headings are links, and pages stay stable."""

from __future__ import annotations

import re
from html import unescape
from typing import NamedTuple

import httpx2
import pytest
from hypothesis import given, strategies as st

from tests.browser.actions import cookies
from tests.browser.dashboard_fleet import DashboardFleet
from tidegate.dashboard import layout
from tidegate.dashboard.pages import hosts as host_pages
from tidegate.dashboard.sorting import SortColumn, SortColumns, list_page


class Row(NamedTuple):
    id: str
    size: int | None


COLUMNS: SortColumns[Row] = SortColumns(
    "-size",
    SortColumn(label="Name", name="name", key=lambda it: it.id),
    SortColumn(label="Size", name="size", key=lambda it: it.size, newest_first=True),
    SortColumn(label="Note"),
)
ROWS = st.lists(
    st.builds(
        Row, st.from_regex(r"[a-c][0-9]{1,3}", fullmatch=True), st.none() | st.integers(0, 3)
    ),
    unique_by=lambda it: it.id,
    max_size=12,
)


@given(ROWS, st.sampled_from(["", "name", "-name", "size", "-size", "nonsense"]), st.integers(1, 4))
def test_pages_in_any_order_show_every_row_once(rows: list[Row], wish: str, limit: int) -> None:
    order = COLUMNS.order(wish)
    seen: list[Row] = []
    after: str | None = ""
    while after is not None:
        page = list_page(rows, order, lambda it: it.id, after, limit)
        seen += page.rows
        after = page.last

    assert sorted(seen) == sorted(rows)
    assert seen == [*list_page(rows, order, lambda it: it.id, "", 99).rows]
    known = [row.size for row in seen if row.size is not None]
    if order.column.name == "size":
        assert known == sorted(known, reverse=order.descending)
        assert [row.size for row in seen[len(known) :]] == [None] * (len(seen) - len(known))


@given(ROWS, st.sampled_from(["name", "-size"]), st.integers(1, 3), st.data())
def test_rows_added_or_removed_between_two_pages_move_no_other_row(
    rows: list[Row], wish: str, limit: int, data: st.DataObject
) -> None:
    order = COLUMNS.order(wish)
    first = list_page(rows, order, lambda it: it.id, "", limit)
    if first.last is None:
        return
    gone = data.draw(st.sets(st.sampled_from(rows)))
    left = [row for row in rows if row not in gone]

    second = list_page(left, order, lambda it: it.id, first.last, 99)

    assert not {*first.rows} & {*second.rows}
    assert {*first.rows, *second.rows} >= {*left}


def test_a_heading_turns_the_order_around_and_keeps_the_filters() -> None:
    name, size, note = COLUMNS.headings(COLUMNS.order(""), "/things", filter="all", selector="")

    assert (name.sorted, name.href) == ("none", "/things?filter=all&sort=name")
    assert (size.sorted, size.href) == ("descending", "/things?filter=all&sort=size")
    assert (note.sorted, note.href) == ("", "")


# ── on pages ──────────────────────────────────────────────────────────────────────────────────────


def first_cells(client: httpx2.Client, address: str) -> list[str]:
    text = client.get(address).text
    return [unescape(found) for found in re.findall(r"<tr><td[^>]*><a[^>]*>([^<]+)<", text)]


def following(client: httpx2.Client, address: str) -> str | None:
    found = re.search(r'<div class="paging">.*?href="([^"]+)"', client.get(address).text)
    return None if found is None else unescape(found[1])


def test_hosts_sort_by_number_and_by_any_column(
    fleet: DashboardFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.channel("stable")
    fleet.enroll("stable", *(f"web-{number}" for number in (10, 2, 1, 33)))
    client = cookies(fleet, "viewer")

    assert first_cells(client, "/hosts") == ["web-1", "web-2", "web-10", "web-33"]
    assert first_cells(client, "/hosts?sort=-name") == ["web-33", "web-10", "web-2", "web-1"]
    assert first_cells(client, "/hosts?sort=-heard&limit=2") == ["web-1", "web-10"]
    page = client.get("/hosts?sort=-name").text
    assert page.count('aria-sort="descending"') == 1
    assert 'href="/hosts?filter=all&amp;sort=name"' in page

    monkeypatch.setattr(layout, "ROWS", 2)
    monkeypatch.setattr(host_pages, "SORTED_MAX", 3)  # too many to sort
    assert first_cells(client, "/hosts?sort=-name") == ["web-1", "web-10", "web-2", "web-33"]
    assert "Narrow the selector" in client.get("/hosts?sort=-name").text


def test_pages_of_sorted_hosts_follow_each_other(fleet: DashboardFleet) -> None:
    fleet.channel("stable")
    fleet.enroll("stable", *(f"web-{number}" for number in range(5)))
    client = cookies(fleet, "viewer")
    address: str | None = "/hosts?sort=-name&limit=2"
    seen: list[str] = []

    while address is not None:
        seen += first_cells(client, address)
        found = following(client, address)
        address = None if found is None else f"{found}&limit=2"

    assert seen == [f"web-{number}" for number in (4, 3, 2, 1, 0)]


def test_finished_rollouts_are_newest_first_and_filtered_by_outcome(
    fleet: DashboardFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.channel("few")
    for number in range(1, 4):
        fleet.publish(f"v{number}", {"run": f"exec web {number}\n"})
        fleet.promote("few", f"web.{number}")
    client = cookies(fleet, "viewer")
    newest = ["few@web.3", "few@web.2", "few@web.1"]

    assert first_cells(client, "/rollouts") == newest
    assert first_cells(client, "/rollouts?sort=name") == newest[::-1]
    assert first_cells(client, "/rollouts?outcome=empty&sort=-name") == newest
    assert first_cells(client, "/rollouts?outcome=failed") == []
    monkeypatch.setattr(layout, "ROWS", 2)
    found = following(client, "/rollouts?sort=name")
    assert found is not None
    assert first_cells(client, found) == newest[:1]


def test_revisions_are_newest_first(fleet: DashboardFleet) -> None:
    for name in ("change-2", "change-10", "another"):
        fleet.publish(name, {"run": f"exec {name}\n"})
    client = cookies(fleet, "viewer")

    def names(address: str) -> list[str]:
        return re.findall(r'href="/revisions/default\.web\.([^"]+)"', client.get(address).text)

    assert names("/releases?tab=all") == ["another", "change-10", "change-2"]
    assert names("/releases?tab=all&sort=package") == ["another", "change-2", "change-10"]
    assert names("/releases?tab=published&sort=number") == ["change-2", "change-10", "another"]
