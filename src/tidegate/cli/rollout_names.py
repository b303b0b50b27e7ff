"""Names of rollouts: complete them, and find the newest one of a channel."""

from __future__ import annotations

from tidegate.cli import completion, context as cli_context, exit_codes, paths

ROLLOUTS = completion.names("/v1/rollouts", "rollout_id")


def id_of(context: cli_context.CommandContext, name: str) -> str:
    """The id of a rollout, given its id or a channel's name. Raises: CommandExit."""
    if "@" in name:
        return name
    newest = context.get(paths.at("channels", name)).get("newest_rollout_id")
    if newest is None:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.NOT_FOUND,
            f"channel {name} has no rollout yet",
            f"tidegate rollout plan {name} RELEASE",
        )
    return str(newest)
