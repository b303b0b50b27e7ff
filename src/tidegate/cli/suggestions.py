"""Suggest the name that was probably meant if the server does not know a name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tidegate.cli import exit_codes, paths, symbols

if TYPE_CHECKING:
    from tidegate.cli.client import ApiClient

# The field of a problem with the unknown name → the list of existing ones, and the field of its
# items with their name. Only one page is read; names beyond it are not suggested.
LISTS: Final = {
    "channel": ("channels", "channel"),
    "host_id": ("hosts", "host_id"),
    "rollout_id": ("rollouts", "rollout_id"),
    "release_id": ("releases", "release_id"),
    "repository": ("repositories", "name"),
    "window_id": ("windows", "window_id"),
    "budget_id": ("budgets", "budget_id"),
    "subscription": ("subscriptions", "name"),
}
NAMES_MAX: Final = "200"


def with_suggestion(client: ApiClient, stop: exit_codes.CommandExit) -> exit_codes.CommandExit:
    """The same error, with the name that was probably meant."""
    if stop.code is not exit_codes.ExitCode.NOT_FOUND:
        return stop
    for member, (path, name) in LISTS.items():
        wrong = stop.problem.get(member)
        if isinstance(wrong, str) and f" {wrong}" in stop.detail:
            meant = _closest(client, path, name, wrong)
            return stop if meant is None else _say(stop, meant)
    meant = _revision_of(client, stop.problem.get("revision"))
    return stop if meant is None else _say(stop, meant)


def _revision_of(client: ApiClient, name: object) -> str | None:
    """The revision of a release, if a release is named where a revision is needed."""
    if not isinstance(name, str):
        return None
    release_id = name.removeprefix("default.")
    try:
        return client.get(paths.at("releases", release_id)).json().get("revision") or None
    except exit_codes.CommandExit:
        return None


def warn_of_scopes(client: ApiClient, scopes: Iterable[str]) -> list[str]:
    """A warning for each scope of a channel that does not exist. It is not an error, because a
    scope may be used before its channel is created.
    """
    warnings = []
    for scope in scopes:
        kind, _, name = scope.partition(":")
        if kind != "channel" or not name:
            continue
        try:
            client.get(paths.at("channels", name))
        except exit_codes.CommandExit as stop:
            if stop.code is not exit_codes.ExitCode.NOT_FOUND:
                continue  # without the permission to read it, give no warning
            meant = _closest(client, "channels", "channel", name)
            rest = "" if meant is None else f"; did you mean {symbols.clean(meant)}?"
            warnings.append(f"warning: there is no channel {symbols.clean(name)}{rest}")
    return warnings


# A value that was refused, and the values that are allowed: "is one of a, b; found 'c'", or
# "'c' is not one of 'a', 'b'.", or "x is 'c'; allowed are a, b".
_ALLOWED: Final = re.compile(r"(?:one of|allowed are|Events are:) ([^;]+)")
_FOUND: Final = re.compile(
    r"found '([^']*)'|'([^']*)'(?: is not one of|; allowed are|\. Events are)"
)


def suggest_value(fault: str) -> str:
    """The end of a sentence about a refused value: the allowed value that was probably meant."""
    allowed = _ALLOWED.search(fault)
    found = _FOUND.search(fault)
    if allowed is None or found is None:
        return ""
    from difflib import get_close_matches

    wrong = (found[1] or found[2] or "").lower()
    known = [word.strip("'.") for word in re.split(r",? (?:and|or) |, ", allowed[1])]
    # explain says channel-edges where an option takes edges.
    parts = [word for word in known if word in wrong.split("-")]
    meant = (get_close_matches(wrong, known, n=1) or parts)[:1]
    if not meant or meant[0] == wrong:
        return ""
    return f"{'' if fault.endswith('.') else '.'} Did you mean {symbols.clean(meant[0])}?"


def _closest(client: ApiClient, path: str, name: str, wrong: str) -> str | None:
    from difflib import get_close_matches

    try:
        page = client.get(paths.at(path), {"limit": NAMES_MAX}).json()
    except exit_codes.CommandExit:
        return None  # without the permission to list them, suggest nothing
    known = [str(item[name]) for item in page.get("items") or [] if name in item]
    close = get_close_matches(wrong, known, n=1)
    return close[0] if close and close[0] != wrong else None


def _say(stop: exit_codes.CommandExit, meant: str) -> exit_codes.CommandExit:
    line, bracket, code = stop.detail.rpartition(" [")
    line = line if bracket else stop.detail
    detail = f"{line}: did you mean {symbols.clean(meant)}?{bracket}{code if bracket else ''}"
    return exit_codes.CommandExit(
        stop.code, detail, *stop.tries, more=stop.more, problem=stop.problem
    )
