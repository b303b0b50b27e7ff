"""Channels: what is authoritative for which hosts, and how it reaches them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from tidegate.cli import (
    channel_policy,
    context as cli_context,
    exit_codes,
    hints,
    output,
    paths,
    times,
    waiting,
)
from tidegate.cli.revisions.names import REPOSITORY_DEFAULT


def channel_state(item: output.Item) -> output.StateCell:
    return output.StateCell("held" if item.get("held_at") else "active")


def describe_approval(item: output.Item) -> list[str] | str:
    """Who approved it; or that one person did it alone, and who reviewed that."""
    if not item.get("breakGlass"):
        return approvers(item)
    by = item.get("reviewedByName") or item.get("reviewedBy")
    verdict = f"reviewed by {by}" if by else "not reviewed"
    return f"break-glass {item['breakGlass']}, {verdict}"


def approvers(item: output.Item) -> list[str]:
    """Who approved it on a protected channel: by name, else by id."""
    ids = item.get("approvedBy") or []
    names = item.get("approvedByNames") or [None] * len(ids)
    return [str(name or user_id) for name, user_id in zip(names, ids, strict=False)]


COLUMNS = (
    output.column("CHANNEL", "channel"),
    output.column("PACKAGE", "package"),
    output.Column("STATE", channel_state),
    output.Column("ROLLOUT", lambda item: output.text(item.get("newest_rollout_id"))),
    output.state_column("IS", "newest_state"),
    output.column("HOSTS", "selector"),
    output.Column(
        "PROTECTED", lambda item: "yes" if item.get("protection") is not None else output.NOTHING
    ),
    output.column("VERSION", "version"),
)
HISTORY = (
    output.time_column("TIME", "recordedAt"),
    output.column("WHAT", "what"),
    output.column("RELEASE", "releaseId"),
    output.column("BEFORE", "previousReleaseId"),
    output.column("STATUS", "status"),
    output.person_column("BY", "by", name="byName"),
    output.Column("APPROVED BY", lambda item: output.text(describe_approval(item))),
    output.column("EVIDENCE", "provenance", "kind"),
    output.column("WHY", "reason"),
)


@click.group(cls=cli_context.NounGroup)
def channel() -> None:
    """Channels: what is authoritative for which hosts, and how it reaches them."""


channel.add_command(channel_policy.policy)


@channel.command("create")
@click.argument("channel")
@click.option("--package", required=True, help="The package that it delivers, such as web.")
@click.option("--hosts", "selector", required=True, help="Which hosts: 'env=prod,!canary' or '*'.")
@click.option(
    "--policy",
    "file",
    metavar="FILE",
    help="The rollout policy as JSON. Default: one host, then 10 %, then the rest.",
)
@cli_context.with_context
def create(
    context: cli_context.CommandContext, channel: str, package: str, selector: str, file: str | None
) -> None:
    """Create CHANNEL: one package, the hosts that match a selector, a rollout policy."""
    body: dict[str, Any] = {"channel": channel, "package": package, "selector": selector}
    if file is not None:
        body["policy"] = channel_policy.load_policy(file)
    answer = channel_policy.write_policy(
        context,
        lambda: context.client.write("POST", paths.at("channels"), body),
        file,
        channel=channel,
        package=package,
        selector=selector,
    )
    waves = output.dig(answer.json(), "policy", "waves") or []
    default = f" (the default policy; see: tidegate channel policy {channel})"
    context.done(
        answer,
        f"Channel {channel} carries {package} to {selector}: {describe_waves(waves)}"
        f"{'' if file else default}.",
    )
    _note_missing(context, package)


def describe_waves(waves: Sequence[output.Item]) -> str:
    """How many hosts get a release together, wave after wave: 1 host, then 10 %, then the rest."""
    if not waves:
        return "all hosts at once"
    said = []
    for wave in waves:
        count, percent = wave.get("count"), wave.get("percent")
        if count is not None:
            size = f"{count} host{'' if count == 1 else 's'}"
        else:
            size = "the rest" if percent is None else f"{percent} %"
        selector = wave.get("selector", "*")
        said.append(size if selector == "*" else f"{size} of {selector}")
    return ", then ".join(said)


def _note_missing(context: cli_context.CommandContext, package: str) -> None:
    """A channel may come before its package; but a name that is not there may be a slip.

    A path alone is of the repository ``default``, as everywhere.
    """
    first, _, rest = package.partition("/")
    repository, path = (first, rest) if rest else (REPOSITORY_DEFAULT, first)
    for name in (package, f"{REPOSITORY_DEFAULT}/{package}"):
        if "/" in name and not _is_missing(context, name):
            return
    where = "" if repository == REPOSITORY_DEFAULT else f" --repo {repository}"
    output.note(f"package {package} has no revision yet")
    output.note(f"  try: tidegate rev create {path} --workspace main{where}")


def _is_missing(context: cli_context.CommandContext, package: str) -> bool:
    """Whether nothing is known of it; one that we may not look at is not told to be missing."""
    try:
        context.client.get(paths.at("packages", *package.split("/")))
    except exit_codes.CommandExit as stop:
        return stop.code is exit_codes.ExitCode.NOT_FOUND
    return False


@channel.command("edit")
@cli_context.dry_run_option
@click.argument("channel", shell_complete=channel_policy.CHANNELS)
@click.option("--hosts", "selector", help="Which hosts.")
@click.option("--policy", "file", metavar="FILE", help="The whole rollout policy as JSON.")
@cli_context.reason(required=False)
@cli_context.break_glass_option
@cli_context.version_option
@cli_context.with_context
def edit(
    context: cli_context.CommandContext,
    channel: str,
    selector: str | None,
    file: str | None,
    reason: str | None,
    version: int | None,
) -> None:
    """Change the hosts or the policy of CHANNEL; open rollouts keep their plan."""
    if selector is None and file is None:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.USAGE,
            "say --hosts or --policy: nothing to change",
            "tidegate channel edit --help",
        )
    path = paths.at("channels", channel)
    etag = context.etag_of(path, version)
    body: dict[str, Any] = {} if selector is None else {"selector": selector}
    if file is not None:
        body["policy"] = channel_policy.load_policy(file)
    if reason:
        body["reason"] = reason
    answer = channel_policy.write_policy(
        context,
        lambda: context.client.write("PATCH", path, body, etag=etag),
        file,
        channel=channel,
    )
    context.done(answer, f"channel {channel} is changed")


@channel.command("list")
@cli_context.watch_option
@cli_context.with_context
def list_all(context: cli_context.CommandContext, watch: bool) -> None:
    """All channels that you may read."""
    context.shown(
        lambda: list(context.client.items(paths.at("channels"))),
        COLUMNS,
        watch=watch,
        empty="no channel yet; try: tidegate channel create --help",
    )


@channel.command("show")
@click.argument("channel", shell_complete=channel_policy.CHANNELS)
@click.option("--as-of", metavar="POSITION|TIME", help="As it was then: a log position or a time.")
@cli_context.watch_option
@cli_context.with_context
def show(context: cli_context.CommandContext, channel: str, as_of: str | None, watch: bool) -> None:
    """Show what CHANNEL delivers, which release is authoritative, and on what evidence."""
    path = paths.at("channels", channel)
    context.told(
        lambda: context.get(path, as_of=times.api_as_of(as_of)), channel_fields, watch=watch
    )


def channel_fields(found: Any) -> list[tuple[str, output.Cell]]:
    release = found.get("pin")
    newest = found.get("newest_state")
    return [
        ("channel", output.text(found["channel"])),
        ("state", channel_state(found)),
        ("held", _held(found)),
        ("package", output.text(found.get("package"))),
        ("release", output.text(output.dig(release, "pinnedReleaseId"))),
        ("before", output.text(output.dig(release, "previousReleaseId"))),
        ("digest", output.text(output.dig(release, "digest"))),
        ("confidence", output.text(output.dig(release, "confidence", "level"))),
        ("evidence", output.text(output.dig(release, "provenance", "kind"))),
        ("hosts", output.text(found.get("selector"))),
        ("rollout", output.text(found.get("newest_rollout_id"))),
        ("is", output.StateCell(newest) if newest else output.NOTHING),
        ("waves", _waves(found)),
        ("after", _edges(found)),
        ("overridden", output.text(found.get("overrides"))),
        ("windows", output.text(found.get("windows") or output.NOTHING)),
        ("protected", _protection(found)),
        ("by itself", _automation(found)),
        ("version", output.text(found.get("version"))),
    ]


def _held(found: output.Item) -> str:
    if not found.get("held_at"):
        return "–"
    who = output.text(found.get("held_by_name") or found.get("held_by"))
    return f"{output.text(found.get('held_reason'))} ({who}, {output.when(found['held_at'])})"


def _protection(found: output.Item) -> str:
    """How many others must agree, and whether one person may act alone."""
    protection = found.get("protection")
    if protection is None:
        return output.NOTHING
    people = protection.get("approvals", 1)
    others = "1 other person" if people == 1 else f"{people} other people"
    allowed = "allowed" if protection.get("break_glass", True) else "forbidden"
    return f"{others}, break-glass {allowed}"


def _edges(found: output.Item) -> str:
    """The channels that come first; one that holds this back says why."""
    edges = found.get("edges") or []
    said = [
        f"{edge['channel']} (blocks: {edge['reason']})" if edge["blocks"] else edge["channel"]
        for edge in edges
    ]
    return output.text(said)


def _automation(found: output.Item) -> str:
    """What the channel does by itself, or why it does nothing."""
    told = found.get("automation") or []
    return output.text([item["sentence"] for item in told] or output.NOTHING)


def _waves(found: output.Item) -> str:
    waves = output.dig(found, "policy", "waves") or []
    return output.text(
        [wave.get("name") or f"wave-{n}" for n, wave in enumerate(waves, 1)] or "at once"
    )


@channel.command("promote")
@cli_context.dry_run_option
@click.argument("channel", shell_complete=channel_policy.CHANNELS)
@click.argument("release")
@click.option("--refresh", is_flag=True, help="Only renew the evidence of the pinned release.")
@click.option(
    "--override",
    multiple=True,
    type=click.Choice(("edges", "freeze", "hold", "window", "start-at", "freshness")),
    help="A gate that the rollout passes. It needs the permission emergency and a reason.",
)
@cli_context.start_option
@cli_context.reason(required=False)
@cli_context.break_glass_option
@cli_context.version_option
@waiting.wait_option
@cli_context.with_context
def promote(
    context: cli_context.CommandContext,
    channel: str,
    release: str,
    refresh: bool,
    override: tuple[str, ...],
    start_at: str | None,
    reason: str | None,
    version: int | None,
    wait: waiting.WaitOption,
) -> None:
    """Make RELEASE (such as web.3) authoritative on CHANNEL and roll it out."""
    if override and not (reason or "").strip():
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.USAGE,
            "an override needs a reason for the log",
            hints.type_again("--reason …"),
        )
    body: dict[str, Any] = {"release_id": release, "reason": reason or ""}
    if refresh:
        body |= {"refresh": True}
    if override:
        body |= {"override": list(override)}
    if start_at is not None:
        body |= {"start_at": times.api_start(start_at)}
    request_promotion(context, channel, body, version, wait)


@channel.command("rollback")
@click.argument("channel", shell_complete=channel_policy.CHANNELS)
@click.option("--to", metavar="RELEASE", help="A release that succeeded on CHANNEL before.")
@click.option(
    "--dry-run", is_flag=True, is_eager=True, help="Only show what it would go back to, and why."
)
@click.option(
    "--now",
    is_flag=True,
    help="All hosts at once, in spite of freezes, holds and windows. It needs emergency.",
)
@click.option("--ignore-budgets", is_flag=True, help="With --now: pass disruption budgets, too.")
@click.option("--lift-quarantine", is_flag=True, help="With --to: lift its quarantine as well.")
@cli_context.reason(required=True, unless="dry_run")
@cli_context.break_glass_option
@cli_context.version_option
@waiting.wait_option
@cli_context.with_context
def rollback(
    context: cli_context.CommandContext,
    channel: str,
    to: str | None,
    dry_run: bool,
    now: bool,
    ignore_budgets: bool,
    lift_quarantine: bool,
    reason: str | None,
    version: int | None,
    wait: waiting.WaitOption,
) -> None:
    """Go back to the newest release that succeeded on CHANNEL and was not rolled back from."""
    if dry_run:
        show_ladder(context, channel, to, now=now)
        return
    body: dict[str, Any] = {"reason": reason}
    if to is not None:
        body |= {"to": to}
    flags = {"now": now, "ignore_budgets": ignore_budgets, "lift_quarantine": lift_quarantine}
    body |= {name: True for name, is_set in flags.items() if is_set}
    request_promotion(context, channel, body, version, wait, verb="rollback")


LADDER = (
    output.column("RELEASE", "release_id"),
    output.time_column("SUCCEEDED", "succeeded_at"),
    output.column("HOSTS", "hosts"),
    output.Column("ROLLBACK", lambda item: output.text(item.get("skipped") or "takes it")),
)


def show_ladder(
    context: cli_context.CommandContext, channel: str, to: str | None, *, now: bool
) -> None:
    """What a rollback would take, and why it skips the releases above. Raises: Stop."""
    found = context.get(paths.at("channels", channel, "ladder"), to=to, now="true" if now else None)
    if not context.is_for_people:
        context.done(found, "")
    else:
        rungs = [
            rung | {"skipped": rung["skipped"] or _later(rung, found)} for rung in found["rungs"]
        ]
        context.list(rungs, LADDER, empty="no release has succeeded there")
    if found["choice"] is None:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.REFUSED, found["refusal"], f"tidegate channel show {channel}"
        )
    command = hints.type_again().replace(" --dry-run", "")
    output.note(f"{command} would go to {found['choice']}; nothing was changed")
    for warning in found.get("warnings") or []:
        output.note(f"warning: {warning}")


def _later(rung: output.Item, found: output.Item) -> str:
    return "" if rung["release_id"] == found["choice"] else "could be named with --to"


def request_promotion(
    context: cli_context.CommandContext,
    channel: str,
    body: dict[str, Any],
    version: int | None,
    wait: waiting.WaitOption,
    *,
    verb: str = "promote",
) -> None:
    """Move a channel's pin; with ``--wait``, until its rollout ended. Raises: Stop."""
    etag = context.etag_of(paths.at("channels", channel), version)
    answer = context.client.write(
        "POST", paths.at("channels", channel, verb), body, etag=etag
    ).json()
    rollout_id = str(answer["rollout_id"])
    if not wait.is_asked or context.is_for_people:
        release = rollout_id.partition("@")[2].partition("~")[0]
        told = "has new evidence" if body.get("refresh") else f"rollout {rollout_id} is open"
        if body.get("start_at"):
            told += f" and starts at {output.when(body['start_at'])}"
        context.done(answer, f"{release} is authoritative on {channel}; {told}")
        context.warn(answer)
    if wait.is_asked:
        waiting.wait_for_rollout(context, rollout_id, wait)


@channel.command("delete")
@cli_context.dry_run_option
@click.argument("channel", shell_complete=channel_policy.CHANNELS)
@cli_context.reason(required=True)
@cli_context.break_glass_option
@cli_context.with_context
def delete(context: cli_context.CommandContext, channel: str, reason: str) -> None:
    """Delete CHANNEL, which nothing uses any more. Its history stays."""
    answer = context.client.write(
        "POST", paths.at("channels", channel, "delete"), {"reason": reason}
    )
    context.done(answer, f"channel {channel} is deleted; its hosts keep what they run")


@channel.command("hold")
@cli_context.dry_run_option
@click.argument("channel", shell_complete=channel_policy.CHANNELS)
@cli_context.reason(required=True)
@cli_context.with_context
def hold(context: cli_context.CommandContext, channel: str, reason: str) -> None:
    """Hold CHANNEL: no promotion and no order until the hold is released."""
    answer = context.client.write("POST", paths.at("channels", channel, "hold"), {"reason": reason})
    command = f"tidegate channel release {channel} --reason …"
    context.done(answer, f"channel {channel} is held; release it with: {command}")


@channel.command("release")
@cli_context.dry_run_option
@click.argument("channel", shell_complete=channel_policy.CHANNELS)
@cli_context.reason(required=True)
@cli_context.break_glass_option
@cli_context.with_context
def unhold(context: cli_context.CommandContext, channel: str, reason: str) -> None:
    """Release the hold on CHANNEL."""
    answer = context.client.write(
        "POST", paths.at("channels", channel, "unhold"), {"reason": reason}
    )
    context.done(answer, f"the hold of {channel} is released")


@channel.command("protect")
@cli_context.dry_run_option
@click.argument("channel", shell_complete=channel_policy.CHANNELS)
@click.option(
    "--approvals",
    type=click.IntRange(1, 5),
    default=1,
    show_default=True,
    help="How many other people must approve a request.",
)
@click.option("--no-break-glass", is_flag=True, help="No one may ever act alone.")
@cli_context.reason(required=True)
@cli_context.break_glass_option
@cli_context.with_context
def protect(
    context: cli_context.CommandContext,
    channel: str,
    approvals: int,
    no_break_glass: bool,
    reason: str,
) -> None:
    """Protect CHANNEL: what moves it forward, loosens it or bypasses takes two people."""
    body = {"approvals": approvals, "break_glass": not no_break_glass, "reason": reason}
    answer = context.client.write("POST", paths.at("channels", channel, "protect"), body)
    people = "person" if approvals == 1 else "people"
    context.done(answer, f"channel {channel} is protected: {approvals} other {people} must approve")


@channel.command("unprotect")
@cli_context.dry_run_option
@click.argument("channel", shell_complete=channel_policy.CHANNELS)
@cli_context.reason(required=True)
@cli_context.break_glass_option
@cli_context.with_context
def unprotect(context: cli_context.CommandContext, channel: str, reason: str) -> None:
    """Let one person do everything on CHANNEL again."""
    answer = context.client.write(
        "POST", paths.at("channels", channel, "unprotect"), {"reason": reason}
    )
    context.done(answer, f"channel {channel} is not protected any more")


@channel.command("history")
@click.argument("channel", shell_complete=channel_policy.CHANNELS)
@cli_context.with_context
def history(context: cli_context.CommandContext, channel: str) -> None:
    """Show what was authoritative on CHANNEL, when, and who decided it."""
    context.list(
        context.client.items(paths.at("releases", channel, "events")),
        HISTORY,
        empty="no promotion yet",
    )
