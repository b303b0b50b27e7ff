"""The link that signs the visitor of the demo in. It works once; then the password is needed."""

from __future__ import annotations

import hmac
import secrets
from threading import Lock
from typing import Annotated

from msgspec import Meta

from tidegate.config import Settings
from tidegate.control.operations.access import AccessOperations
from tidegate.control.secrets import hash_secret
from tidegate.dashboard.layout import UTF8, PageQuery, page_route, see_other
from tidegate.web import authentication, inputs, routing

# Not a redirect: browsers send no SameSite=Strict cookie on one that began on another site.
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Tidegate</title>
<meta http-equiv="refresh" content="0;url=/"><p><a href="/">Go on to the dashboard</a></p></html>"""


class SignInLinkPath(inputs.Input, frozen=True):
    code: Annotated[str, Meta(max_length=64)]


class SignInLink:
    """A one-time link that opens a session for one user."""

    def __init__(self, login: str, password: str) -> None:
        self._login = login
        self._password = password
        self._code = secrets.token_urlsafe(24)
        self._expected: str | None = hash_secret(self._code)
        self._lock = Lock()

    @property
    def path(self) -> str:
        return f"/demo/{self._code}"

    @property
    def route(self) -> routing.Route:
        def enter(
            request: routing.Request[SignInLinkPath, PageQuery, inputs.Nothing],
            access: AccessOperations,
            settings: Settings,
        ) -> routing.Response:
            """Sign the visitor in, once."""
            if not self._fits(request.path.code):
                return see_other("/signin")
            session = access.sign_in(self._login, self._password, address=request.arrived.address)
            cookie = authentication.set_cookie(session.cookie, settings)
            return routing.Response(PAGE.encode(), media=UTF8, cookies=(cookie,))

        return page_route("/demo/{code}", enter, routing.PUBLIC)

    def _fits(self, code: str) -> bool:
        with self._lock:
            fits = self._expected is not None and hmac.compare_digest(
                self._expected, hash_secret(code)
            )
            if fits:
                self._expected = None
            return fits
