"""Every screen: its screenshot, behaviour and permissions; it loads only our own files."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.api.serving import Served
from tests.browser import large_rollout, samples
from tests.browser.actions import Picture, cookies, sign_in
from tests.browser.dashboard_fleet import PASSWORD, DashboardFleet, serve_dashboard
from tests.browser.gallery import answer
from tidegate.dashboard.html import STATIC, render, static_files
from tidegate.dashboard.routes import PAGES
from tidegate.dashboard.state_labels import GRID, GRID_CODES
from tidegate.domain.access.roles import VERBS, Role
from tidegate.domain.hosts.states import HostState
from tidegate.web.routing import PUBLIC, SIGNED_IN, Requires, Route

PATHS = {
    "version": "0",
    "name": "default.web.v1",
    "rollout_id": "stable@web.1",
    "index": "0",
    "channel": "stable",
    "host_id": "web-00",
}
SCREENS = {
    "overview": "/",
    "rollouts": "/rollouts",
    "rollout": "/rollouts/stable@web.1",
    "channels": "/channels",
    "channel": "/channels/stable",
    "releases": "/releases",
    "revision": "/revisions/default.web.v2",
    "approvals": "/approvals",
    "new-channel": "/new/channel",
    "edit-channel": "/channels/stable/edit",
    "maintenance": "/maintenance",
    "new-window": "/new/window",
    "new-freeze": "/new/freeze",
    "new-budget": "/new/budget",
    "plan": "/plan",
    "hosts": "/hosts",
    "host": "/hosts/web-00",
    "events": "/events",
    "outbox": "/outbox",
    "settings": "/settings",
    "find": "/find?q=web",
}


# ── design and behaviour ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 1440), ("light", 390)])
def test_every_screen_works_without_errors_or_external_requests(
    populated: DashboardFleet, chromium: Browser, picture: Picture, scheme: str, width: int
) -> None:
    context = chromium.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,  # type: ignore[arg-type]
    )
    page = context.new_page()
    faults: list[str] = []
    asked: set[str] = set()
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if "401" not in said.text else None)
    page.on("request", lambda request: asked.add(urlsplit(request.url).netloc))

    sign_in(page, populated, "approver")
    for name, path in SCREENS.items():
        found = page.goto(populated.url + path)
        assert found is not None
        assert found.status == 200, name
        page.wait_for_selector("main")
        picture(page, f"{name}-{scheme}-{width}")
        scrolls = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert scrolls <= 0, f"{name} is wider than its window"
        assert page.title() != "owned"
    context.close()

    assert faults == []
    assert asked == {urlsplit(populated.url).netloc}


def test_works_with_the_keyboard_and_keeps_the_chosen_theme(
    fleet: DashboardFleet, page: Page
) -> None:
    sign_in(page, fleet, "approver")

    page.keyboard.press("g")
    page.keyboard.press("h")
    expect(page.locator("h1")).to_have_text("Hosts")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("t")
    theme = page.get_attribute("html", "data-theme")
    page.reload()
    assert theme == page.get_attribute("html", "data-theme") == "dark"
    page.keyboard.press("/")
    page.keyboard.type("12")
    page.keyboard.press("Enter")
    page.wait_for_url("**/events?at=12")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()


def test_filters_the_grid_by_its_legend_and_names_a_host_under_the_pointer(
    populated: DashboardFleet, page: Page
) -> None:
    sign_in(page, populated, "approver", "/rollouts/stable@web.1")
    page.wait_for_selector("[data-loaded]")

    code = GRID_CODES[HostState.REVERTED]
    counts = page.evaluate("[...hostGrid.bytes]")
    assert counts.count(code) == 1
    assert len(counts) == 5
    button = page.locator(f".legend [data-code='{code}']")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    page.focus("canvas")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".host-tip b")).to_have_text("web-00")
    page.keyboard.press("Enter")
    page.wait_for_url("**/hosts/web-00")


def test_opens_the_page_of_a_rollout_of_100_000_hosts(
    fleet: DashboardFleet, page: Page, picture: Picture
) -> None:
    rollout_id = large_rollout.open_large_rollout(fleet, 100_000, ordered=400)

    sign_in(page, fleet, "approver", f"/rollouts/{rollout_id}")
    page.wait_for_selector("[data-loaded]")

    pending = page.locator(".legend button", has_text="Pending").locator(".number")
    expect(pending).to_have_text("400")
    assert page.evaluate("hostGrid.bytes.length") == 100_000
    assert page.evaluate("hostGrid.columns * hostGrid.pitch <= hostGrid.width")
    print(f"repaint of 100,000 hosts: {page.evaluate('hostGrid.painted'):.1f} ms")
    picture(page, "grid")


def test_an_empty_installation_shows_the_next_command(fleet: DashboardFleet, page: Page) -> None:
    sign_in(page, fleet, "approver")
    for path in ("/", "/rollouts", "/channels", "/releases", "/hosts"):
        page.goto(fleet.url + path)

        expect(page.locator(".command").first).to_have_text(re.compile("^tidegate "))


def test_sets_up_a_new_installation_with_the_printed_code(
    tmp_path_factory: pytest.TempPathFactory, page: Page, picture: Picture
) -> None:
    data = tmp_path_factory.mktemp("first") / "data"
    with serve_dashboard(data, is_set_up=False) as fleet:
        code = fleet.served.installation.accounts.open_setup()
        assert code is not None
        page.goto(f"{fleet.url}/signin")
        picture(page, "setup")
        page.fill("[name=code]", "wrong")
        page.fill("[name=login]", "author")
        page.fill("[name=name]", "The author")
        page.fill("[name=password]", PASSWORD)
        page.click("text=I work alone")
        page.click("button.first")
        expect(page.locator("[role=alert]")).to_be_visible()

        page.fill("[name=code]", code)
        page.fill("[name=password]", PASSWORD)
        page.click("button.first")

        expect(page.locator("h1")).to_have_text("Overview")
        expect(page.locator(".who")).to_contain_text("The author")


@pytest.mark.parametrize("name", samples.SCREENS)
def test_renders_the_sample_view_of_every_screen(chromium: Browser, name: str) -> None:
    page = chromium.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.route("**/*", answer)

    page.goto(f"http://tidegate.test/{name}")
    page.wait_for_selector("main")
    page.close()

    assert faults == []


# ── permissions ───────────────────────────────────────────────────────────────────────────────────


def sent(client: httpx2.Client, route: Route, csrf: str = "") -> httpx2.Response:
    path = route.path.replace("...}", "}")
    for name, value in PATHS.items():
        path = path.replace(f"{{{name}}}", value)
    if route.is_write:
        return client.post(path, data={"csrf_token": csrf}, headers={"accept": "text/html"})
    with client.stream("GET", path) as answer:
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            answer.read()
        return answer


def csrf_of(client: httpx2.Client) -> str:
    found = re.search(r'name="csrf_token" value="([^"]+)"', client.get("/settings").text)
    assert found is not None
    return found[1]


def test_without_a_session_every_page_leads_to_sign_in(populated: DashboardFleet) -> None:
    head = populated.installation.log.head()
    nobody = populated.served.client()

    answers = {route.name: sent(nobody, route) for route in PAGES if route.permission != PUBLIC}

    assert {name: found.status_code for name, found in answers.items()} == dict.fromkeys(
        answers, 401
    )
    assert all("text/html" in found.headers["content-type"] for found in answers.values())
    assert populated.installation.log.head() == head


@pytest.mark.parametrize("login", ["author", "viewer", "root"])
def test_refuses_every_verb_outside_the_roles_of_the_user(
    populated: DashboardFleet, login: str
) -> None:
    roles = {"author": Role.AUTHOR, "viewer": Role.VIEWER, "root": Role.SECURITY_ADMIN}
    client = cookies(populated, login)
    csrf = csrf_of(client)
    head = populated.installation.log.head()

    def is_covered(route: Route) -> bool:
        match route.permission:
            case Requires(verbs=verbs):
                return bool(VERBS[roles[login]] & set(verbs))
        return route.permission in (PUBLIC, SIGNED_IN)

    forbidden = [route for route in PAGES if not is_covered(route)]
    answers = {route.name: sent(client, route, csrf).status_code for route in forbidden}

    # A form without its fields is refused for that before its sender is checked.
    assert {name for name, status in answers.items() if status not in (400, 403)} == set()
    assert populated.installation.log.head() == head


def test_refuses_a_form_without_the_token_of_its_session(populated: DashboardFleet) -> None:
    client = cookies(populated, "approver")
    head = populated.installation.log.head()

    answers = {
        route.name: sent(client, route).status_code
        for route in PAGES
        if route.is_write and route.permission != PUBLIC
    }

    assert set(answers.values()) == {403}
    assert populated.installation.log.head() == head


def test_redirects_to_no_other_site_after_sign_in(fleet: DashboardFleet) -> None:
    for address in ("https://evil.test/", "//evil.test", "/\\evil.test", "evil"):
        form = {"login": "viewer", "password": PASSWORD, "next": address}

        found = fleet.served.client().post("/signin", data=form)

        assert found.headers["location"] == "/"


def test_explains_every_disabled_verb(populated: DashboardFleet) -> None:
    client = cookies(populated, "viewer")
    for path in ("/rollouts/stable@web.1", "/channels/stable", "/revisions/default.web.v2"):
        text = client.get(path).text

        disabled = text.count('aria-disabled="true"')
        assert disabled > 0
        assert disabled == len(re.findall(r'class="reason" id="why-[^>]*>[^<]{8,}<', text))
        assert 'data-opens="verb-' not in text


# ── files ─────────────────────────────────────────────────────────────────────────────────────────


def vendored() -> Iterator[tuple[str, str, str]]:
    page = (STATIC / "vendor" / "VENDORED.md").read_text()
    for line in page.splitlines():
        cells = [cell.strip(" `") for cell in line.split("|")]
        if line.startswith("| `"):
            yield cells[1], cells[5].split(", ")[1].strip("`"), cells[6]


def test_vendored_files_are_unchanged_and_have_their_licences() -> None:
    listed = {name: digest for name, _, digest in vendored()}
    folder = STATIC / "vendor"

    found = {
        path.name: base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()
        for path in folder.iterdir()
        if path.suffix not in (".md", ".LICENSE")
    }

    assert found == listed
    assert all((folder / licence).stat().st_size > 200 for _, licence, _ in vendored())


def test_static_files_are_cached_under_an_address_that_changes_with_them(
    fleet: DashboardFleet,
) -> None:
    page = render("sign_in.html", samples.frame("signin"), samples.DOOR).decode()
    client = fleet.served.client()

    addresses = set(re.findall(r'(?:href|src)="(/static/[^"]+)"', page))

    assert len(addresses) >= 6
    for address in addresses:
        found = client.get(address)
        assert found.status_code == 200
        assert "immutable" in found.headers["cache-control"]
    assert client.get("/static/0/nothing.js").status_code == 404
    assert len(static_files()) > len(addresses)


def test_pages_contain_no_inline_script_or_style() -> None:
    for name, (template, _, view) in samples.SCREENS.items():
        page = render(template, samples.frame(name), view).decode()

        assert not re.search(r"<script(?![^>]*\bsrc=)", page), name
        assert not re.search(r"<[^>]+\s(?:style|on\w+)=", page), name


def test_every_state_has_a_glyph_and_a_word_of_its_own() -> None:
    chips = [chip for _, chip in GRID]

    assert len({chip.word for chip in chips}) == len({chip.icon for chip in chips}) == len(chips)
    assert len(GRID) <= 16  # the browser uses them in sixteen places


def test_pages_are_not_in_the_openapi_document(fleet: DashboardFleet) -> None:
    served: Served = fleet.served
    token = served.token(served.user())

    document = served.client(token).get("/v1/openapi.json").json()

    assert all(
        path.startswith(("/v1/", "/livez", "/readyz", "/version", "/metrics"))
        for path in document["paths"]
    )


# ── not found ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/nowhere", 404, "No page has this address."),
        ("/rollouts/stable@web.99", 404, "There is nothing here</h1>"),
        ("/hosts/web-00/no-such-thing", 404, "There is nothing here"),
        ("/events?at=x", 400, "That cannot be asked"),
        ("/signout", 405, "That cannot be done here"),
    ],
)
def test_shows_errors_as_pages_to_a_browser(
    populated: DashboardFleet, path: str, status: int, said: str
) -> None:
    client = cookies(populated, "viewer")

    page = client.get(path, headers={"accept": "text/html"})
    assert page.status_code == status
    assert page.headers["content-type"].startswith("text/html")
    assert said in page.text
    assert "<nav" in page.text


def test_answers_programs_with_a_problem_if_there_is_no_page(
    populated: DashboardFleet,
) -> None:
    client = cookies(populated, "viewer")

    for path, accept in (("/nowhere", "*/*"), ("/v1/nowhere", "text/html"), ("/nowhere", "")):
        found = client.get(path, headers={"accept": accept})
        assert found.status_code == 404
        assert found.headers["content-type"] == "application/problem+json"


def test_an_internal_error_names_only_the_request_id(
    populated: DashboardFleet, page: Page, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign_in(page, populated, "viewer")

    def broken(*_: object, **__: object) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(type(populated.installation.fleet_reader), "open_rollouts", broken)
    found = page.goto(f"{populated.url}/rollouts")

    assert found is not None
    assert found.status == 500
    expect(page.locator("main")).to_contain_text("That is our fault")
    expect(page.locator("main")).to_contain_text(found.headers["x-request-id"])
    expect(page.locator("main")).not_to_contain_text("a bug")
    picture(page, "fault")
