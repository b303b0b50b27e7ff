"""People of the registry API, with two published releases."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import httpx2

from tests.api.people import NAME, People
from tests.api.serving import Served
from tests.domain.documents import good
from tidegate.domain.access.roles import Role

T0 = datetime(2026, 4, 24, 20, 0, tzinfo=UTC)


OPERATOR = ("operator_command", "release-control-plane")


SCOPE = "web-stable"


URL = f"/v1/releases/{SCOPE}"


class RegistryPeople(People):
    """A server with two published releases, web.1 and web.2, and a release manager."""

    def __init__(self, served: Served) -> None:
        super().__init__(served)
        self.manager = served.as_role(Role.RELEASE_MANAGER)
        self.operator = served.as_role(Role.FLEET_OPERATOR)
        self.draft()
        self.publish()
        self.draft("v2", tasks=[{"type": "edit", "source": NAME}])
        self.push("default.web.v2", a_txt="2")
        self.publish("default.web.v2")

    def pin(self, release: str, **more: Any) -> dict[str, Any]:
        digest = self.viewer.get(f"/v1/releases/{release}").json()["digest"]
        document = good(OPERATOR, SCOPE, release, digest)
        return {"releaseId": release, "digest": digest, **document, **more}

    def register(self, **more: Any) -> httpx2.Response:
        answer = self.manager.post(f"{URL}/register", json=self.pin("web.1", **more))
        assert answer.status_code == 201, answer.text
        return answer
