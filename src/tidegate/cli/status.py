"""``tidegate status``: the installation on one screen, with an exit code for scripts."""

from __future__ import annotations

import click

from tidegate.cli import (
    context as cli_context,
    exit_codes,
    live_view,
    output,
    paths,
    symbols,
    waiting,
)

TITLES = ("CHANNEL", "WANTED", "HOSTS ON IT", "SILENT", "NEWEST ROLLOUT")


def newest_cell(item: output.Item) -> output.Cell:
    """The state or the outcome of a channel's newest rollout."""
    if item.get("held_by"):
        return output.StateCell("held", "Held")
    if item.get("is_frozen"):
        return output.StateCell("held", "Frozen")
    if item.get("outcome"):
        return output.StateCell(
            str(item["outcome"]), waiting.OUTCOMES.get(str(item["outcome"]), "")
        )
    if not item.get("rollout_id"):
        return "–"
    state = str(item.get("state"))
    if state in ("Reverted", "Failed"):
        return output.StateCell(state, "Stopped")
    if item.get("progress"):
        return output.StateCell(state, f"Rolling out, {waiting.progress_text(item['progress'])}")
    return output.StateCell(state, f"Rolling out, wave {item['wave']} of {item['waves']}")


def _finding_lines(item: output.Item, mark: str, colour: str) -> list[live_view.Line]:
    """The lines of one finding, about a channel or the installation, and the next command."""
    where = f"{symbols.clean(item['channel'])}: " if item.get("channel") else ""
    lines: list[live_view.Line] = [
        [(f"{mark} {where}{symbols.clean(item['says'])}", colour)],
        [(f"    next: {symbols.clean(item['next'])}", "default")],
    ]
    if item.get("ask"):
        lines.append([(f"    {symbols.clean(item['ask'])}", "default")])
    return lines


def frame(found: output.Item) -> list[live_view.Line]:
    """The lines of the screen."""
    lines: list[live_view.Line] = []
    notices = found.get("notices") or []
    if found["is_well"]:
        lines.append([("✔ Nothing needs you." if notices else "✔ All is well.", "green")])
    else:
        lines.append([("What needs you:", "default")])
    for item in found["attention"]:
        lines += _finding_lines(item, "✘", "red")
    for item in notices:
        is_stop = item["kind"] in ("freeze", "hold", "override")
        lines += _finding_lines(item, "!" if is_stop else "·", "yellow" if is_stop else "default")
    counts = (
        (found["open_rollouts"], "rollout open", "rollouts open"),
        (found["approvals_waiting"], "proposal waits", "proposals wait"),
        (found["quarantined"], "artifact quarantined", "artifacts quarantined"),
    )
    parts = [f"{number} {one if number == 1 else many}" for number, one, many in counts if number]
    if parts:
        lines.append([(" · ".join(parts), "default")])
    table = [
        (
            output.text(item["channel"]),
            output.text(item.get("wanted")),
            f"{item['on_wanted']}/{item['hosts']}",
            output.text(item["silent"] or "–"),
            newest_cell(item),
        )
        for item in found["channels"]
    ]
    if table:
        lines += [[("", "default")], *live_view.table_lines(TITLES, table)]
    else:
        lines.append([("no channel yet; try: tidegate channel create --help", "default")])
    return lines


@click.command("status", cls=cli_context.VerbCommand)
@cli_context.watch_option
@cli_context.with_context
def status(context: cli_context.CommandContext, watch: bool) -> None:
    """Show every channel, what is in progress and what needs you, on one screen.

    It names the requests and proposals that wait for your approval, and freezes and holds.
    Exits with 0 if nothing needs you and with 1 if something does. What ends by itself, such as a
    soak, and what waits for other people is shown but does not count.
    """
    path = paths.at("status")
    if watch:
        live_view.follow(lambda: context.get(path), frame, output=context.output)
        return
    found = context.get(path)
    if context.is_for_people:
        for line in frame(found):
            output.say(live_view.paint(line))
    else:
        context.card(found, [])
    if not found["is_well"]:
        click.get_current_context().exit(int(exit_codes.ExitCode.REFUSED))
