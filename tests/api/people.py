"""The people of the package API: an author, an approver, a viewer, and what they can do."""

from __future__ import annotations

from typing import Any

import httpx2

from tests.api.serving import Served
from tidegate.domain.access.roles import Role

NAME = "default.web.v1"


class People:
    """An author, an approver and a viewer of one server."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.author = served.as_role(Role.AUTHOR)
        self.approver = served.as_role(Role.APPROVER)
        self.viewer = served.as_role(Role.VIEWER)

    def draft(self, workspace: str = "v1", **more: Any) -> httpx2.Response:
        body = {"repository": "default", "packageName": "web", "workspaceName": workspace, **more}
        answer = self.author.post("/v1/revisions", json=body)
        assert answer.status_code == 201, answer.text
        return answer

    def push(self, name: str, **files: str) -> httpx2.Response:
        sent = [{"path": path.replace("_", "."), "text": text} for path, text in files.items()]
        answer = self.author.put(
            f"/v1/revisions/{name}/resources", json={"files": sent}, headers=self.seen(name)
        )
        assert answer.status_code == 200, answer.text
        return answer

    def seen(self, name: str) -> dict[str, str]:
        return {"if-match": self.viewer.get(f"/v1/revisions/{name}").headers["etag"]}

    def step(self, who: httpx2.Client, verb: str, name: str = NAME, **body: Any) -> httpx2.Response:
        return who.post(f"/v1/revisions/{name}/{verb}", json=body, headers=self.seen(name))

    def publish(self, name: str = NAME) -> httpx2.Response:
        assert self.step(self.author, "propose", name).status_code == 200
        digest = self.document(name)["status"]["content"]["digest"]
        answer = self.step(self.approver, "approve", name, digest=digest)
        assert answer.status_code == 200, answer.text
        return answer

    def document(self, name: str = NAME) -> dict[str, Any]:
        found: dict[str, Any] = self.viewer.get(f"/v1/revisions/{name}").json()
        return found
