"""Show, check and compare the rollout policy of a channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from tidegate.cli import completion, context as cli_context, exit_codes, output, paths

if TYPE_CHECKING:
    from tidegate.cli.client import ServerResponse

POLICY_BYTES_MAX = 256 * 1024
CHANNELS = completion.names("/v1/channels", "channel")
EXAMPLE = """{
  "waves": [
    {"name": "canary", "count": 1, "soak_seconds": 300, "converged_min": 1},
    {"name": "early", "percent": 10, "soak_seconds": 300, "converged_min": 1},
    {"name": "rest", "soak_seconds": 60, "converged_min": 1}
  ],
  "on_failure": "rollback-and-halt",
  "offline_grace_seconds": 900
}"""


def load_policy(file: str) -> Any:
    """Load a policy from a JSON file. Raises: CommandExit."""
    import json
    from pathlib import Path

    try:
        content = Path(file).read_bytes()[:POLICY_BYTES_MAX]
        return json.loads(content)
    except OSError as error:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.USAGE, f"{file} cannot be read: {error.strerror}", f"ls -l {file}"
        ) from None
    except ValueError as error:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.USAGE,
            f"{file} is not JSON: {error}",
            "tidegate channel policy --example",
        ) from None


@click.command("policy", cls=cli_context.VerbCommand)
@click.argument("channel", required=False, shell_complete=CHANNELS)
@click.option("--example", is_flag=True, help="Print the default policy, to start from.")
@click.option(
    "--check", metavar="FILE", help="Name every fault of the policy in FILE. Exit 0 or 2."
)
@click.option("--diff", metavar="FILE", help="Show what FILE would change on CHANNEL.")
@click.option("--channel", "named", metavar="CHANNEL", help="The channel that --check is for.")
@click.option(
    "--package",
    metavar="PACKAGE",
    help="With --check: the package of a channel that does not exist yet.",
)
@click.option("--hosts", "selector", metavar="SELECTOR", help="With --check: its hosts.")
@cli_context.with_context
def policy(
    context: cli_context.CommandContext,
    channel: str | None,
    example: bool,
    check: str | None,
    diff: str | None,
    named: str | None,
    package: str | None,
    selector: str | None,
) -> None:
    """Show the policy of CHANNEL with all fields, or check one. Changes nothing."""
    if example:
        output.say(EXAMPLE)
        return
    channel = channel or named
    file = check or diff
    if file is None and channel is not None:
        output.say(output.json_of(context.get(paths.at("channels", channel, "policy"))["policy"]))
        return
    if file is None or (diff is not None and channel is None):
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.USAGE,
            "name a channel, or say --example or --check FILE",
            "tidegate channel policy --help",
        )
    body: dict[str, Any] = {"policy": load_policy(file)}
    if channel is not None:
        body["channel"] = channel
    if package is not None and selector is not None:
        body |= {"package": package, "selector": selector}
    found = _check(context, body, channel, is_compared=diff is not None)
    if not context.is_for_people:
        context.card(found, [])
    else:
        _print_check(found, file, is_compared=diff is not None)
    if found["faults"]:
        raise SystemExit(exit_codes.ExitCode.USAGE)


def write_policy(
    context: cli_context.CommandContext,
    write: Callable[[], ServerResponse],
    file: str | None,
    **channel: Any,
) -> ServerResponse:
    """Create or edit a channel. If the server refuses the policy, check it and report all faults,
    because the server may stop at the first kind of fault.

    Raises:
        CommandExit.
    """
    try:
        return write()
    except exit_codes.CommandExit as stop:
        if file is None or stop.problem.get("code") not in ("invalid_request", "malformed_policy"):
            raise
        body = {"policy": load_policy(file), **channel}
        try:
            found = context.client.write("POST", paths.at("policies", "check"), body).json()
        except exit_codes.CommandExit:
            raise stop from None
        faults = [str(item["sentence"]) for item in found["faults"]]
        if not faults:
            raise
        raise exit_codes.CommandExit(
            stop.code,
            f"{file} has {output.counted(len(faults), 'fault')} [{stop.problem['code']}]",
            f"tidegate channel policy {channel['channel']} --check {file}",
            more=tuple(faults),
            problem=stop.problem,
        ) from None


def _check(
    context: cli_context.CommandContext,
    body: dict[str, Any],
    channel: str | None,
    *,
    is_compared: bool,
) -> Any:
    """Check a policy on its channel, or without hosts if the channel does not exist yet and there
    is nothing to compare with.

    Raises: CommandExit.
    """
    path = paths.at("policies", "check")
    try:
        return context.client.write("POST", path, body).json()
    except exit_codes.CommandExit as stop:
        if stop.code is not exit_codes.ExitCode.NOT_FOUND or is_compared:
            raise
    output.note(
        f"there is no channel {channel} yet, so {channel} is checked without its hosts and edges; "
        "to check it with them, say --package and --hosts"
    )
    return context.client.write("POST", path, {"policy": body["policy"]}).json()


def _print_check(found: Any, file: str, *, is_compared: bool) -> None:
    for kind in ("faults", "warnings", "notes"):
        for finding in found[kind]:
            output.say(f"{kind[:-1]}: {finding['sentence']}")
    if found["faults"]:
        return
    if not is_compared:
        output.say(f"{file} can be used")
        return
    for change in found["changes"] or []:
        output.say(f"{change['path']}: {_shown(change['before'])} → {_shown(change['after'])}")
    if not found["changes"]:
        output.say(f"{file} changes nothing")


def _shown(value: Any) -> str:
    import json

    return "none" if value is None else json.dumps(value, ensure_ascii=False)
