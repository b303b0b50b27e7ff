"""Walk through the dashboard as a person could, by the links and forms of its pages."""

from __future__ import annotations

import re
from collections import Counter, deque
from dataclasses import dataclass, field
from html import unescape
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

import httpx2

PAGES_MAX = 1_500
ALIKE_MAX = 1  # addresses of each shape to visit
WRONG = (400, 404, 405, 409, 422)  # no page links to these
ADDRESSES = ("href", "hx-get", "data-grid")
POINTERS = ("data-opens", "aria-describedby", "aria-labelledby")
_TAG = re.compile(
    r"<(/form|/select|(?:a|button|details|dialog|div|form|h2|input|li|link|main|option|p|section"
    r"|select|span|symbol|textarea|use))\b([^<>]*)>"
)
_ATTRIBUTE = re.compile(r"([a-z:-]+)(?:=\"([^\"]*)\")?")


@dataclass
class Form:
    """A form as the browser would send it."""

    action: str
    method: str = "get"
    values: dict[str, str] = field(default_factory=dict)
    choices: dict[str, list[str]] = field(default_factory=dict)


class Page:
    """The links, forms and faults of one page.

    The templates escape every angle bracket and quote all values, so tags are found as text.
    """

    def __init__(self, text: str) -> None:
        self.links: list[str] = []
        self.forms: list[Form] = []
        self.ids: list[str] = []
        self.needs: set[str] = set()  # ids that elements of the page refer to
        self.alerts = 0
        self._form: Form | None = None
        self._select = ""
        for tag, rest in _TAG.findall(text):
            self._note(tag, {name: unescape(value) for name, value in _ATTRIBUTE.findall(rest)})

    @property
    def faults(self) -> list[str]:
        twice = {f"id {name} twice" for name, count in Counter(self.ids).items() if count > 1}
        missing = {f"nothing is called {name}" for name in self.needs - set(self.ids)}
        said = {"it says that something is wrong"} if self.alerts else set()
        return sorted(twice | missing | said)

    def _note(self, tag: str, found: dict[str, str]) -> None:
        self.alerts += found.get("role") == "alert"
        if "id" in found:
            self.ids.append(found["id"])
        self.needs.update(found[name] for name in POINTERS if name in found)
        for address in (found[name] for name in ADDRESSES if name in found):
            if address.startswith("#"):
                self.needs.add(address[1:])
            else:
                self.links.append(address)
        if tag == "form":
            self._form = Form(found["action"], found.get("method", "get"))
            self.forms.append(self._form)
        elif tag in ("/form", "/select"):
            self._form, self._select = (None if tag == "/form" else self._form), ""
        elif self._form is not None:
            self._note_field(self._form, tag, found)

    def _note_field(self, form: Form, tag: str, found: dict[str, str]) -> None:
        name, value = found.get("name", ""), found.get("value", "")
        if tag == "select":
            self._select = name
        elif tag == "option" and not self._select:
            pass  # what the browser suggests for a text field
        elif tag == "option":
            form.choices.setdefault(self._select, []).append(value)
            if "selected" in found or self._select not in form.values:
                form.values[self._select] = value
        elif found.get("type") == "radio" or (tag == "button" and name):
            form.choices.setdefault(name, []).append(value)
            if "checked" in found:
                form.values[name] = value
        elif tag in ("input", "textarea") and name:
            form.values[name] = value


@dataclass
class Walk:
    """The result of a walk: the status of each address, the forms, and the faults."""

    statuses: dict[str, int] = field(default_factory=dict)
    forms: dict[str, Form] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def refused(self, status: int) -> list[str]:
        return sorted(address for address, found in self.statuses.items() if found == status)


def walk(client: httpx2.Client, *starts: str, wrong: tuple[int, ...] = WRONG) -> Walk:
    """Follow every link from ``starts``, and submit every GET form."""
    seen = Walk()
    alike: dict[tuple[str, ...], int] = {}
    waiting = deque((start, "") for start in starts)
    known = set(starts)
    while waiting:
        address, source = waiting.popleft()
        assert len(seen.statuses) < PAGES_MAX, "the walk does not end"
        answer = client.get(address)
        seen.statuses[address] = answer.status_code
        if answer.status_code >= 500 or answer.status_code in wrong:
            seen.faults.append(f"{source} → {address}: {answer.status_code} {answer.text[-300:]}")
        if answer.status_code == 303:
            targets = [answer.headers["location"]]
        elif answer.headers.get("content-type", "").startswith("text/html"):
            page = Page(answer.text)
            whole = answer.status_code == 200 and "<!doctype html>" in answer.text
            seen.faults += [f"{address}: {fault}" for fault in page.faults if whole]
            targets = page.links + [
                item for form in page.forms if form.method == "get" for item in asked(form)
            ]
            for form in page.forms:
                if form.method == "post":
                    seen.forms.setdefault(form.action, form)
        else:
            continue
        for target in targets:
            target = urljoin(address, target)
            if target in known or not _is_new(target, alike):
                continue
            known.add(target)
            waiting.append((target, address))
    return seen


def asked(form: Form) -> list[str]:
    """The addresses that a form leads to: with its default values, and with each of its choices."""
    found = [dict(form.values)]
    for name, values in form.choices.items():
        found += [{**form.values, name: value} for value in values]
    return [f"{form.action}?{urlencode(values)}" for values in found]


def _is_new(address: str, alike: dict[tuple[str, ...], int]) -> bool:
    """Whether it is a page of this server whose shape was not yet visited often enough."""
    parts = urlsplit(address)
    if parts.netloc or parts.path.startswith("/static/"):
        return False
    shape = _shape(parts.path, dict(parse_qsl(parts.query)))
    if not shape:
        return True
    alike[shape] = alike.get(shape, 0) + 1
    return alike[shape] <= ALIKE_MAX


def _shape(path: str, query: dict[str, str]) -> tuple[str, ...]:
    """What addresses of similar pages have in common; empty for a page that is always visited."""
    match path:
        case "/events":
            names = sorted(name for name in query if name != "type" or query[name])
            return (path, query.get("tag", "").partition(":")[0], *names)
        case "/plan":
            return (path, query.get("channel", ""), str(query.get("simulate") == "true"))
        case "/plan/forecast":
            return (path, query.get("runs", ""))
    if "sort" in query:  # a sorted list: its filters need no further visits
        return (path, "sort", query["sort"])
    return ()
