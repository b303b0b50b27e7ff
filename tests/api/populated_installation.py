"""An installation with an example of everything that pages must be able to show.

All of it is created through the API, agents and slices, in an order that a reader can follow;
no row is written directly.
"""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256
from typing import Any

import httpx2

from tests.api.served_fleet import ServedFleet, WireAgent
from tests.api.serving import ADMIN, Served
from tests.domain.documents import good
from tidegate.control.operations.accounts import PersonNames
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.outbox.reconciliation import (
    ReconcileActual,
    ReconcileEffect,
    reconcile_actual,
    reconcile_effect,
)
from tidegate.domain.outbox.slices import RecordAttempt, record_attempt
from tidegate.domain.outbox.states import ReconciliationFinding
from tidegate.kernel.model import Meta

PASSWORD = "a long enough passphrase"
BY_ADMIN = Meta(actor=ADMIN)
WAVES = [{"name": "first", "count": 1, "soak_seconds": 30}, {"name": "rest"}]
ALL = [{"name": "all", "soak_seconds": 30}]
PEOPLE = {
    "viewer": (Grant(Role.VIEWER),),
    "operator": (Grant(Role.FLEET_OPERATOR), Grant(Role.RELEASE_MANAGER)),
    "administrator": tuple(map(Grant, Role)),
    "neighbour": (
        Grant(Role.AUTHOR, "repository:alone"),
        Grant(Role.FLEET_OPERATOR, "channel:few"),
    ),
    "nobody": (),
}


def idle(channel: str) -> dict[str, str]:
    """An edge to a channel of another package."""
    return {"channel": channel, "require": "idle"}


class PopulatedInstallation(ServedFleet):
    """Fills itself part by part, in the order of ``fill``; the clock advances between the parts."""

    def __init__(self, served: Served) -> None:
        super().__init__(served)
        self.admin = served.admin

    def fill(self) -> None:
        self.users()
        self.revisions()
        self.aftermath()
        self.under_way()
        self.trouble()
        self.outbox()
        self.hosts()
        self.protected()
        self.hindered()

    def browser(self, login: str) -> httpx2.Client:
        """Sign in as this user: a session, whose forms carry its token."""
        client = self.served.client(None, accept="text/html")
        done = client.post("/signin", data={"login": login, "password": PASSWORD, "next": "/"})
        assert done.status_code == 303, done.text
        return client

    def user(self, login: str, *grants: Grant) -> str:
        user_id = f"user_{login.replace('-', ''):0<10}"
        called = PersonNames(login, f"The {login} & co. <{login}@example.net>")
        self.served.add_person(user_id, called, PASSWORD, *sorted(grants))
        return user_id

    def users(self) -> None:
        """Users and tokens in each state; first, because a token takes a day to expire."""
        for login, grants in PEOPLE.items():
            user_id = self.user(login, *grants)
            for name, days in (("short", 1), ("long", 30), ("ended", 30)):
                self._token(user_id, f"{login}{name}", days)
            self._token(user_id, f"{login}narrow", 30, grants[:1])
            ended = f"/v1/tokens/{login}ended/revoke"
            done(self.admin.post(ended))
        for login, verb in (("shut-out", "disable"), ("erased", "erase")):
            user_id = self.user(login, Grant(Role.VIEWER))
            done(self.admin.post(f"/v1/users/{user_id}/{verb}", json={}))
        self.wait(25 * 3_600)

    def _token(
        self, user_id: str, name: str, days: int, grants: tuple[Grant, ...] | None = None
    ) -> None:
        self.served.make_token(name, user_id, days, grants)

    # ── revisions ──

    def put(self, name: str, *files: dict[str, Any]) -> None:
        url = f"/v1/revisions/{name}/resources"
        done(self.author.put(url, json={"files": files}, headers=self.seen(name)))

    def revisions(self) -> None:
        """A revision in each state of its life, and of each kind of content."""
        edit = [{"type": "edit", "source": "default.web.v1"}]
        binary = {"path": "bin/a <b> & 'c'.bin", "base64": "AP/+"}
        there = {"path": "bin/app", "uri": "https://cdn.example/app?a=1&b=2", "bytes": 5}
        there["sha256"] = sha256(bytes(5)).hexdigest()
        long = {"path": "long.txt", "text": "".join(f"{n}\n" for n in range(3_000))}
        self.draft("empty", packageName="fresh")
        self.draft("new", packageName="one/with/parts")
        self.draft("kinds", tasks=edit)
        more = there | {"path": "bin/more"}
        self.put("default.web.kinds", binary, there, more, long, {"path": "none", "text": ""})
        self.draft("asked", tasks=edit)
        self.put("default.web.asked", {"path": "a.txt", "text": "asked\n"})
        done(self.step(self.author, "propose", "default.web.asked"))
        self.draft("v1", packageName="gated", readinessGates=["tested"])
        self.draft("v1", packageName="ending", finalizers=["wait"])
        assert self.author.delete("/v1/revisions/default.ending.v1").status_code == 202
        self._of_another()
        self._descended()
        self._deleted()

    def _of_another(self) -> None:
        """A repository where people may approve their own revisions, and one that requires two."""
        done(self.admin.post("/v1/repositories", json={"name": "alone", "quorum": 0}))
        done(self.admin.post("/v1/repositories", json={"name": "strict", "quorum": 2}))
        both = self.served.as_role(Role.AUTHOR, Role.APPROVER)
        author, self.author = self.author, both
        for repository in ("alone", "strict"):
            self.draft("v1", repository=repository, packageName="app")
            self.put(f"{repository}.app.v1", {"path": "a.txt", "text": "1"})
            done(self.step(both, "propose", f"{repository}.app.v1"))
        digest = self.document("alone.app.v1")["status"]["content"]["digest"]
        done(self.step(both, "approve", "alone.app.v1", digest=digest))
        digest = self.document("strict.app.v1")["status"]["content"]["digest"]
        done(self.step(self.approver, "approve", "strict.app.v1", digest=digest))
        self.author = author

    def _descended(self) -> None:
        """A clone that was changed and upgraded to a newer upstream, and an imported revision."""
        self.draft(
            "v1", packageName="site", tasks=[{"type": "clone", "upstream": "default.web.v1"}]
        )
        self.put("default.site.v1", {"path": "b.txt", "text": "ours\n"})
        self.publish("default.site.v1")
        upgrade = {
            "type": "upgrade",
            "oldUpstream": "default.web.v1",
            "newUpstream": "default.web.v2",
            "localPackageRevision": "default.site.v1",
        }
        self.draft("v2", packageName="site", tasks=[upgrade])
        files = [{"path": "a.txt", "text": "old"}]
        revisions = [{"workspaceName": "v7", "number": 7, "files": files}]
        body = {"source": "elsewhere", "revisions": revisions}
        done(self.admin.post("/v1/package-imports/default/brought", json=body))

    def _deleted(self) -> None:
        """A revision proposed for deletion, a deleted one, and one whose predecessor is deleted."""
        self.draft("v1", packageName="old")
        self.publish("default.old.v1")
        self.draft("v2", packageName="old", tasks=[{"type": "edit", "source": "default.old.v1"}])
        self.publish("default.old.v2")
        for name in ("default.old.v1", "default.old.v2"):
            done(self.step(self.author, "propose-delete", name, reason="unused"))
        self.draft("v1", packageName="gone")
        assert self.author.delete("/v1/revisions/default.gone.v1").status_code == 204
        assert self.approver.delete("/v1/revisions/default.old.v1").status_code == 204

    # ── channels and rollouts ──

    def channel(self, name: str, *hosts: str, package: str = "default/web", **policy: Any) -> None:
        """Create a channel with hosts of its own."""
        body = {"channel": name, "package": package, "selector": f"app={name}"}
        body["policy"] = {"waves": WAVES, "sustained_failure_seconds": 5, **policy}  # type: ignore[assignment]
        done(self.manager.post("/v1/channels", json=body))
        for host_id in hosts:
            self.enroll(host_id, app=name)

    def roll(self, name: str, release_id: str = "web.1", **more: str) -> str:
        """Promote a release, dispatch the first orders, and return the rollout's id."""
        body = {"release_id": release_id, **more}
        promoted = done(self.manager.post(f"/v1/channels/{name}/promote", json=body))
        self.dispatch()
        return str(promoted.json()["rollout_id"])

    def activated(self, host_id: str, status: str = "pass") -> WireAgent:
        agent = self.agents[host_id]
        order = agent.order()
        assert order is not None, host_id
        agent.activate(order, status)
        return agent

    def steer(self, rollout_id: str, verb: str, **body: Any) -> httpx2.Response:
        seen = {"if-match": self.viewer.get(f"/v1/rollouts/{rollout_id}").headers["etag"]}
        body = {"reason": "to see <it> & more", **body}
        return self.operator.post(f"/v1/rollouts/{rollout_id}/{verb}", json=body, headers=seen)

    def aftermath(self) -> None:
        """Finished rollouts: pruned, succeeded, superseded, aborted, and without hosts."""
        self.channel("pruned", "p-1", waves=ALL, retention_seconds=60)
        self.roll("pruned", display_name="spring <cleaning>", reason="because & why not")
        self.converge("p-1")
        self.wait(120)
        assert self.tick().retentions == 1
        self.channel("through", "t-1", waves=ALL)
        self.roll("through")
        self.converge("t-1")
        self.enroll("t-late", app="through")
        self.dispatch(thorough=True)
        self.channel("superseded", "s-1", waves=ALL)
        self.roll("superseded")
        self.roll("superseded", "web.2")
        self.channel("returning", "r-1", waves=ALL)
        self.roll("returning")
        self.converge("r-1")
        self.roll("returning", "web.2")
        self.channel("aborted", "a-1")
        done(self.steer(self.roll("aborted"), "abort"))
        self.channel("none", package="default/none")
        self.channel("short", package="web")
        self.channel("deserted")
        self.manager.post("/v1/channels/deserted/promote", json={"release_id": "web.1"})
        self.channel("hollow", "hollow-1", waves=[{"name": "nobody", "selector": "tier=none"}])
        self.channel("partly", "partly-1", "partly-2", waves=[{"name": "one", "count": 1}])
        self.channel("half", "half-1", waves=[{"selector": "tier=none"}, {"name": "rest"}])
        self.roll("half")
        self.channel(
            "alone", "alone-1", package="alone/app", waves=[], edges=[idle("none"), idle("through")]
        )

    def under_way(self) -> None:
        """Rollouts in progress: opening, active, soaking, deferred, paused, and with held hosts."""
        self.channel("opening", *(f"o-{number}" for number in range(6)))
        done(self.manager.post("/v1/channels/opening/promote", json={"release_id": "web.1"}))
        self.channel("waiting", "wait-1", waves=[{"name": "all", "manual": True}])
        self.roll("waiting")
        self.channel("soaking", *(f"soak-{number}" for number in range(6)))
        self.roll("soaking")
        self.activated("soak-0")
        self.channel("deferred", "d-1", waves=ALL)
        self.roll("deferred")
        agent = self.agents["d-1"]
        order = agent.order()
        assert order is not None
        done(agent.acknowledge(order))
        done(agent.say("ActivationStarted"))
        done(agent.say("ActivationDeferred", component="kernel"))
        self.channel("paused", "pause-1", "pause-2")
        done(self.steer(self.roll("paused"), "pause"))
        self.channel("held", "held-1")
        self.roll("held")
        done(self.manager.post("/v1/channels/held/hold", json={"reason": "<look>"}))
        done(self.operator.put("/v1/budgets/few", json={"selector": "app=few", "max_in_flight": 1}))
        self.channel("few", *(f"few-{number}" for number in range(6)), waves=[])
        self.roll("few")

    def trouble(self) -> None:
        """Rollouts with failing hosts: rolled back, failed, tolerated, waived, refused, expired."""
        self.channel("back", "back-1", "back-2")
        self.roll("back")
        self.fail("back-1")
        for name in ("waived", "again", "given-up"):
            self.channel(name, f"{name}-1", f"{name}-2")
            self.roll(name)
            self.fail(f"{name}-1")
        done(self.steer("waived@web.1", "clearance", mode="waive", hosts=["waived-1"]))
        done(self.steer("again@web.1", "clearance", mode="resume"))
        done(self.steer("given-up@web.1", "clearance", mode="abandon"))
        self.channel("failed", "failed-1", waves=ALL, on_failure="halt")
        self.roll("failed")
        self.broken("failed-1", "halt")
        self.channel("stuck", "stuck-1", waves=ALL)
        self.roll("stuck")
        self.broken("stuck-1", "rollback-and-halt")
        done(self.agents["stuck-1"].say("RollbackFailed", phase="switch", exit_code=3))
        self.channel("borne", "borne-1", "borne-2", waves=[{"name": "all", "failures_max": 1}])
        self.roll("borne")
        self.fail("borne-1")
        self.channel("refused", "refused-1", waves=ALL)
        self.roll("refused")
        assert self.agents["refused-1"].order() is not None
        done(self.agents["refused-1"].say("DispatchReject", reason="<not signed>"))
        self.channel("probed", "probed-1", waves=ALL, sustained_failure_seconds=600)
        self.roll("probed")
        self.activated("probed-1", "fail")
        self.channel("quick", "quick-1", waves=ALL, ack_seconds=30, activation_seconds=30)
        self.roll("quick")
        order = self.agents["quick-1"].order()
        assert order is not None
        done(self.agents["quick-1"].acknowledge(order))
        self.wait(60)
        self.tick()

    def broken(self, host_id: str, applied: str) -> None:
        """A host whose probe fails for too long."""
        agent = self.activated(host_id, "fail")
        self.wait(10)
        said = {"sustained_duration_secs": 10, "failing_probes": ["http"]}
        done(agent.say("Failed", policy_applied=applied, **said))

    # ── the rest ──

    def outbox(self) -> None:
        """Intents in each state, and the findings of the reconciler."""
        names = ["done", "dead", "tried", "fresh", "dropped", "drifted", "other"]
        self.channel("owing", operations=names)
        done(self.manager.post("/v1/channels/owing/promote", json={"release_id": "web.1"}))
        found = self.viewer.get("/v1/outbox", params={"scope": "owing"}).json()["items"]
        ids = {item["operation"]: item["id"] for item in found}
        for operation, succeeded, retryable in (
            *(("done", True, False), ("drifted", True, False)),
            *(("dead", False, False), ("tried", False, True)),
        ):
            command = RecordAttempt(
                scope="owing",
                intent_id=ids[operation],
                attempt=1,
                succeeded=succeeded,
                detail="<b>gone</b>",
                retryable=retryable,
            )
            self.installation.execute.run(record_attempt, command, meta=BY_ADMIN)
        dropped = f"/v1/outbox/{ids['dropped'].replace('#', '%23').replace('/', '%2F')}/cancel"
        done(self.operator.post(dropped, json={"reason": "nobody listens"}))
        for operation, finding in (
            ("drifted", ReconciliationFinding.MISSING),
            ("done", ReconciliationFinding.CONFLICTING),
        ):
            drift = ReconcileEffect(
                scope="owing",
                operation=operation,
                intent_id=ids[operation],
                finding=finding,
                signature="1" * 32,
                repairable=False,
            )
            self.installation.execute.run(reconcile_effect, drift, meta=BY_ADMIN)
        differs = ReconcileActual(scope="owing", differs=True, signature="2" * 32)
        self.installation.execute.run(reconcile_actual, differs, meta=BY_ADMIN)
        self._pinned_by_hand()

    def _pinned_by_hand(self) -> None:
        """Scopes of the registry without a channel: one in use and one retired."""
        digest = self.viewer.get("/v1/releases/web.1").json()["digest"]
        pair = ("factory_batch_manifest", "partner-factory")
        versions = {}
        for scope in ("outside", "retired"):
            body = {"releaseId": "web.1", "digest": digest, **good(pair, scope, "web.1", digest)}
            body["operations"] = ["announce"]
            made = done(self.manager.post(f"/v1/releases/{scope}/register", json=body))
            versions[scope] = {"if-match": made.headers["etag"]}
        url = "/v1/releases/retired/retire"
        done(self.manager.post(url, json={"reason": "over"}, headers=versions["retired"]))

    def hosts(self) -> None:
        """Hosts in each state: silent, revoked, retired; some of them have an order."""
        self.enroll("h-plain")
        join = {"labels": {"app": "db"}, "limit": 2, "until": "2026-06-01T00:00:00Z"}
        done(self.operator.post("/v1/join-tokens", json=join))
        for host_id, verb in (("h-revoked", "revoke"), ("h-retired", "retire")):
            self.enroll(host_id, zone="a")
            done(self.operator.post(f"/v1/hosts/{host_id}/{verb}", json={"reason": "stolen"}))
        for host_id, verb in (("soak-0", "revoke"), ("few-0", "retire"), ("back-2", "retire")):
            done(self.operator.post(f"/v1/hosts/{host_id}/{verb}", json={"reason": "stolen"}))
        for host_id in ("soak-0", "few-0", "back-2", "h-revoked", "h-retired"):
            self.agents.pop(host_id, None)
        for agent in self.agents.values():
            done(agent.beat())
        self.clock.advance(timedelta(seconds=200))
        for host_id in ("t-1", "half-1"):
            self.agents[host_id].open()
            done(self.agents[host_id].beat(through="sha256:" + "1" * 64))
        assert self.tick().silences > 0
        self.dispatch(thorough=True)

    def protected(self) -> None:
        """A protected channel with requests in each state, and a promotion by break-glass."""
        why = {"reason": "it is <production>"}
        self.channel("guarded", "g-1", waves=ALL)
        done(self.manager.post("/v1/channels/guarded/protect", json=why))
        emergency = self.served.as_role(Role.RELEASE_MANAGER, Role.ON_CALL)
        glass = {"tidegate-break-glass": "checkout%20is%20down"}
        alone = {"release_id": "web.1"}
        done(emergency.post("/v1/channels/guarded/promote", json=alone, headers=glass))
        managers = [self.served.as_role(Role.RELEASE_MANAGER) for _ in range(4)]
        asked = [self._ask(who, f"<new {number}>") for number, who in enumerate(managers)]
        paths = [f"/v1/requests/{item['request_id']}" for item in asked]
        done(self.approver.post(f"{paths[0]}/reject", json=why))
        done(managers[1].post(f"{paths[1]}/withdraw", json={}))
        done(self.manager.post("/v1/channels/guarded/hold", json=why))
        body = {"digest": asked[2]["digest"]}
        approved = done(self.approver.post(f"{paths[2]}/approve", json=body))
        assert approved.json()["not_carried_out"], "the channel is held"
        done(self.manager.post("/v1/channels/guarded/unhold", json=why))
        self._ask(self.served.client(self.served.token("user_administrator")))
        policy = {"waves": [{"name": "all", "soak_seconds": 5}], "edges": [idle("none")]}
        seen = {"if-match": self.viewer.get("/v1/channels/guarded").headers["etag"]}
        edit = self.manager.patch("/v1/channels/guarded", json={"policy": policy}, headers=seen)
        assert edit.status_code == 202, edit.text

    def _ask(self, who: httpx2.Client, reason: str = "<new>") -> dict[str, Any]:
        body = {"release_id": "web.2", "reason": reason}
        asked = who.post("/v1/channels/guarded/promote", json=body)
        assert asked.status_code == 202, asked.text
        return dict(asked.json())

    def hindered(self) -> None:
        """Freezes; they come last, because no order is sent after them."""
        few = {"reason": "sale <now>", "channels": ["few"]}
        done(self.operator.post("/v1/freezes", json=few))
        until = {"reason": "night", "until": "2030-01-01T00:00:00Z", "channels": ["few", "held"]}
        done(self.operator.post("/v1/freezes", json=until))
        nightly: dict[str, Any] = {"window_id": "nightly", "kind": "deny", "channels": ["few"]}
        nightly |= {"start": "2026-05-01T02:00", "duration_seconds": 7_200, "rule": "FREQ=DAILY"}
        done(self.operator.post("/v1/windows", json={**nightly, "reason": "backup <now>"}))
        hook = {"name": "ops", "kind": "slack", "url": "https://hooks.example.com/x"}
        done(self.operator.post("/v1/subscriptions", json=hook))


def done(answer: httpx2.Response) -> httpx2.Response:
    assert answer.status_code in (200, 201), f"{answer.request.url}: {answer.text}"
    return answer
