"""Channels: which hosts should run which release, and how it reaches them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from tidegate.cli import (
    channel_documents,
    channel_policy,
    channel_promotion,
    context as cli_context,
    exit_codes,
    output,
    paths,
    times,
)
from tidegate.cli.revisions.names import REPOSITORY_DEFAULT


@click.group(cls=cli_context.NounGroup)
def channel() -> None:
    """Channels: which hosts should run which release, and how it reaches them."""


channel.add_command(channel_policy.policy)


@channel.command("create")
@click.argument("channel")
@click.option(
    "--package",
    required=True,
    help="The package that it delivers: web. With its repository: apps/web, default/net/vpc.",
)
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
    """Describe the sizes of waves: 1 host, then 10 %, then the rest."""
    if not waves:
        return "all hosts at once"
    sizes = []
    for wave in waves:
        count, percent = wave.get("count"), wave.get("percent")
        if count is not None:
            size = f"{count} host{'' if count == 1 else 's'}"
        else:
            size = "the rest" if percent is None else f"{percent} %"
        selector = wave.get("selector", "*")
        sizes.append(size if selector == "*" else f"{size} of {selector}")
    return ", then ".join(sizes)


def _note_missing(context: cli_context.CommandContext, package: str) -> None:
    """Print a note if the package of a new channel does not exist, as its name may be a typo.

    A channel may be created before its package. A path alone means the repository ``default``.
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
    """Whether the package does not exist; False if we may not read it."""
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
        context, lambda: context.client.write("PATCH", path, body, etag=etag), file, channel=channel
    )
    context.done(answer, f"channel {channel} is changed")


@channel.command("list")
@cli_context.watch_option
@cli_context.with_context
def list_all(context: cli_context.CommandContext, watch: bool) -> None:
    """List the channels that you may read."""
    context.print_items(
        lambda: list(context.client.items(paths.at("channels"))),
        channel_documents.COLUMNS,
        watch=watch,
        empty="no channel yet; try: tidegate channel create --help",
    )


@channel.command("show")
@click.argument("channel", shell_complete=channel_policy.CHANNELS)
@click.option("--as-of", metavar="POSITION|TIME", help="As it was then: a log position or a time.")
@cli_context.watch_option
@cli_context.with_context
def show(context: cli_context.CommandContext, channel: str, as_of: str | None, watch: bool) -> None:
    """Show which release CHANNEL wants, what its hosts run, and what stops it."""
    path = paths.at("channels", channel)
    context.print_object(
        lambda: context.get(path, as_of=times.api_as_of(as_of)),
        channel_documents.channel_fields,
        watch=watch,
    )


for verb in channel_promotion.VERBS:
    channel.add_command(verb)


@channel.command("delete")
@cli_context.dry_run_option
@click.argument("channel", shell_complete=channel_policy.CHANNELS)
@cli_context.reason(required=True)
@cli_context.break_glass_option
@cli_context.with_context
def delete(context: cli_context.CommandContext, channel: str, reason: str) -> None:
    """Delete CHANNEL if nothing uses it any more. Its history stays."""
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
    context.done_or_not(answer, f"channel {channel} is held; release it with: {command}")


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
    context.done_or_not(answer, f"the hold of {channel} is released")


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
    """Protect CHANNEL: promotions, weaker rules and bypasses then need two people."""
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
    """Show which releases CHANNEL was set to, when, and who decided it. The newest is first."""
    changes = list(context.client.items(paths.at("releases", channel, "events")))
    context.list(reversed(changes), channel_documents.HISTORY, empty="no promotion yet")
