"""Defects of the previous system in its agent API; the numbers are those of the reference."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from tests.api.served_fleet import ROLLOUT, ServedFleet, serve_fleet
from tidegate.domain.hosts.rows import DISPATCH_QUEUE

SECONDS_MAX = 60.0


def until(looked: list[str], hosts: set[str]) -> None:
    deadline = monotonic() + SECONDS_MAX
    while not hosts <= set(looked):
        assert monotonic() < deadline, looked
        sleep(0.01)


def test_d11_an_accepted_report_is_in_the_log_and_a_refused_one_names_the_state(
    fleet: ServedFleet,
) -> None:
    fleet.sail()
    agent = fleet.agents["web-01"]
    order = agent.order()
    assert order is not None

    taken = agent.acknowledge(order)
    stands = fleet.viewer.get(f"/v1/rollouts/{ROLLOUT}/events").json()["items"]
    illegal = agent.say("Converged", current_closure=None)
    after = fleet.viewer.get(f"/v1/rollouts/{ROLLOUT}/events").json()["items"]

    assert taken.status_code == 200
    assert "DispatchAck" in [item["type"].rpartition(".")[2] for item in stands]
    assert (illegal.status_code, illegal.json()["code"]) == (409, "invalid_transition")
    assert illegal.json()["state"] == "Activating"
    assert after == stands


def test_d23_an_order_wakes_only_its_own_host(tmp_path: Path) -> None:
    names = ["web-02", *(f"web-{number:02}" for number in range(3, 9))]
    looked: list[str] = []
    with ThreadPoolExecutor(len(names) + 1) as threads:
        with serve_fleet(tmp_path / "data") as fleet:
            fleet.create()
            for name in names[1:]:
                fleet.enroll(name, app="web")
            tell_of_looks(fleet, looked)
            canary = threads.submit(fleet.agents["web-01"].poll, 60)
            others = [threads.submit(fleet.agents[name].poll, 60) for name in names]
            until(looked, {"web-01", *names})
            fleet.viewer.get("/livez")  # one turn of the event loop later, all of them wait
            looked.clear()

            fleet.promote()
            fleet.dispatch()

            assert canary.result().json()["rollout_id"] == ROLLOUT
            assert set(looked) == {"web-01"}, "the others still wait"
            assert not any(other.done() for other in others)
            close, fleet.served.close = fleet.served.close, lambda: None  # type: ignore[method-assign]
        assert {other.result().status_code for other in others} == {204}, "the server stopped"
        close()


def tell_of_looks(fleet: ServedFleet, looked: list[str]) -> None:
    """Record the host of every read from the queue of orders."""
    store = fleet.installation.store
    ask = store.range

    def told(collection: str, **how: Any) -> Any:
        if collection == DISPATCH_QUEUE.name:
            looked.append(how.get("prefix", "").rstrip("/"))
        return ask(collection, **how)

    store.range = told  # type: ignore[method-assign]
