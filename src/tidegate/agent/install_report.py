"""The output of ``agent install``: what it wrote, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tidegate.agent import errors, install as agent_install

DID: Final = {"create": "wrote", "replace": "replaced", "keep": "unchanged:"}


def install(
    *,
    program: tuple[str, ...],
    is_user: bool,
    is_dry: bool,
    server: str,
    channels: Sequence[str],
    writable: Sequence[str],
    run_as: str,
) -> Iterator[str]:
    """Install the agent, or only show how with ``is_dry``. Return the lines to print.

    Raises:
        InstallRefused, InvalidAgentSetting.
    """
    if is_user and run_as:
        raise errors.InstallRefused("with --user it runs as you; leave --run-as out")
    request = agent_install.InstallRequest(
        program=program,
        places=agent_install.default_places(is_user),
        server=server,
        channels=tuple(map(_to_channel, channels)),
        writable=tuple(writable),
        run_as=run_as,
    )
    plan = agent_install.plan_install(request)
    if not is_dry:
        agent_install.apply_install(plan)
    return iter(
        (
            *(_dry_lines(plan) if is_dry else _done_lines(plan)),
            *_kept_lines(plan),
            *_next_lines(plan),
        )
    )


def _to_channel(text: str) -> tuple[str, str]:
    """Raises: InstallRefused."""
    name, equals, root = text.partition("=")
    if not (name and equals and root.startswith("/")):
        raise errors.InstallRefused(
            f"--channel is {text[:200]!r}; allowed is NAME=DIR with a full path, as web=/srv/web"
        )
    return name, root


def _dry_lines(plan: agent_install.InstallPlan) -> Iterator[str]:
    for file in plan.files:
        if file.change == "keep":
            yield f"# {file.path} stays as it is"
        else:
            yield f"# would {file.change} {file.path}:"
            yield file.content


def _done_lines(plan: agent_install.InstallPlan) -> Iterator[str]:
    for file in plan.files:
        yield f"{DID[file.change]} {file.path}"


def _kept_lines(plan: agent_install.InstallPlan) -> Iterator[str]:
    for kept in plan.kept:
        yield f"kept {kept}"


def _next_lines(plan: agent_install.InstallPlan) -> Iterator[str]:
    yield "Nothing was started. Next:"
    for command in plan.next:
        yield f"  {command}"
