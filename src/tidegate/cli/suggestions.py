"""Which name a person probably meant, when the server knows none of that name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tidegate.cli import exit_codes, paths, symbols

if TYPE_CHECKING:
    from tidegate.cli.client import ApiClient

# The member of a problem that holds the unknown name → the list of those that exist, and the member
# of its items that is their name. One page is asked for: a name beyond that is not suggested.
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
    """The same end of a command, with the name that was probably meant."""
    if stop.code is not exit_codes.ExitCode.NOT_FOUND:
        return stop
    for member, (path, name) in LISTS.items():
        wrong = stop.problem.get(member)
        if isinstance(wrong, str) and f" {wrong}" in stop.detail:
            meant = _closest(client, path, name, wrong)
            return stop if meant is None else _say(stop, meant)
    return stop


def warn_of_scopes(client: ApiClient, scopes: Iterable[str]) -> list[str]:
    """A sentence for each scope of a channel that does not exist. A scope may come before its
    channel, so this refuses nothing.
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
                continue  # without the permission to look there is nothing to say
            meant = _closest(client, "channels", "channel", name)
            rest = "" if meant is None else f"; did you mean {symbols.clean(meant)}?"
            warnings.append(f"warning: there is no channel {symbols.clean(name)}{rest}")
    return warnings


def _closest(client: ApiClient, path: str, name: str, wrong: str) -> str | None:
    from difflib import get_close_matches

    try:
        page = client.get(paths.at(path), {"limit": NAMES_MAX}).json()
    except exit_codes.CommandExit:
        return None  # without the permission to list them there is nothing to suggest
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
