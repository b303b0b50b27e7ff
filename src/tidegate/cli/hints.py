"""The commands to try after an error of the server.

Every problem is printed as one line with at least one command to try next.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any, Final

import click
from click.core import ParameterSource

from tidegate.cli import exit_codes, suggestions
from tidegate.errors import Refused

FAULTS_MAX = 20

# The command that shows an object of a noun. {name} is the verb's own argument.
LOOKS: Final = {
    "rev": "rev show {name}",
    "repo": "repo list",
    "channel": "channel show {name}",
    "rollout": "rollout show {name}",
    "host": "host show {name}",
    "quarantine": "quarantine list",
    "freeze": "freeze list",
    "window": "window list",
    "outbox": "outbox list",
    "publication": "publication list {name}",
    "token": "token list",
    "user": "user list",
    "target": "target list",
    "budget": "budget list",
    "notify": "notify show {name}",
    "join": "join list",
    "request": "request list",
    "log": "log tail",
}
# The command that lists all objects of a noun.
LISTS: Final = {
    **LOOKS,
    "rev": "rev list",
    "channel": "channel list",
    "rollout": "rollout list",
    "host": "host list",
    "notify": "notify list",
    "publication": "channel list",
}
# Codes with other next commands than showing the object, ordered by noun.
NEXT: Final[Mapping[str, tuple[str, ...]]] = {
    # who asks
    "unauthenticated": ("login",),
    "wrong_credentials": ("login",),
    "wrong_setup_code": ("serve", "setup"),
    "already_set_up": ("login",),
    "user_disabled": ("user enable {name}",),
    "own_access": ("user list",),
    "not_owner": ("token list",),
    # how often, how much, which version
    "rate_limited": ("{path} --help",),
    "too_large": ("{path} --help",),
    "limit_exceeded": ("{path} --help",),
    "reason_required": ("{path} --help",),
    "version_required": ("{path} {name} --version …",),
    "no_such_path": ("--version", "doctor"),
    "method_not_allowed": ("--version", "doctor"),
    # revisions
    "self_approval": ("whoami", "rev show {name}"),
    "self_deletion": ("whoami", "rev show {name}"),
    "not_proposer": ("rev reject {name} --reason …",),
    "not_draft": ("rev copy {name} --workspace …",),
    "immutable": ("rev copy {name} --workspace …",),
    "digest_mismatch": ("rev diff {name}", "rev show {name}"),
    "content_damaged": ("rev reject {name} --reason …", "rev show {name}"),
    "deletion_not_proposed": ("rev propose-delete {name}",),
    "proposal_protected": ("rev withdraw {name}", "rev reject {name} --reason …"),
    "still_pinned": ("channel list",),
    "still_rollback_target": ("channel list",),
    "still_referenced": ("rev list",),
    "package_exists": ("rev list", "rev copy … --workspace …"),
    "path_overlap": ("rev list",),
    "already_exists": ("{list}",),
    "source_not_published": ("rev list --lifecycle Published",),
    "upgrade_conflict": ("rev upgrade {name} --strategy copy-merge --workspace …",),
    # names of another noun than the verb's own
    "channel_not_found": ("channel list",),
    "host_not_found": ("host list",),
    "budget_not_found": ("budget list",),
    "window_not_found": ("window list",),
    # channels and rollouts
    "release_not_pinnable": ("rev list --lifecycle Published",),
    "wrong_package": ("channel show {name}", "rev list --lifecycle Published"),
    "channel_held": ("channel release {name} --reason …",),
    "window_closed": ("window list", "window next …"),
    "window_exists": ("window edit … --reason …",),
    "channel_frozen": ("freeze list", "freeze delete … --reason …"),
    "closure_quarantined": ("quarantine list", "quarantine lift {name} … --reason …"),
    "already_promoted": ("rollout watch {name}",),
    "plan_outdated": ("rollout plan {name} …",),
    "nothing_to_go_back_to": ("channel rollback {name} --dry-run",),
    "rollout_halted": ("rollout explain {name}", "rollout clear {name} --mode … --reason …"),
    "rollout_paused": ("rollout resume {name} --reason …",),
    "rollback_running": ("rollout watch {name}",),
    "budget_exhausted": ("budget list",),
    # hosts
    "selector_overlap": ("channel list", "host list"),
    "host_enrolled": ("host re-enroll {name}",),
    "host_retired": ("host re-enroll {name}",),
    "host_busy": ("host explain {name}",),
    # the outbox
    "newer_intent": ("outbox list",),
    "destination_refused": ("{path} --help",),
    "target_unknown": ("target list", "target create --help"),
}
SUBJECTS: Final = ("name", "rollout", "channel", "host", "user", "release", "key")  # of verbs


def problem(status: int, body: bytes, headers: Mapping[str, str]) -> exit_codes.CommandExit:
    """The end of a command that got this problem document."""
    code = exit_codes.exit_code_of_status(status)
    fields = _document(body) or {}
    document = fields
    if not fields:
        detail = f"the server answered {status} without a problem document"
        document = exit_codes.problem_of(exit_codes.PROBLEMS.get(code, Refused), code, detail) | {
            "status": status
        }
        fields = {"detail": detail}
        if "x-request-id" in headers:
            document["instance"] = headers["x-request-id"]
    error_code = str(fields.get("code", ""))
    detail = str(fields.get("detail") or fields.get("title") or f"status {status}")
    faults = fields.get("errors") or ()
    more = tuple(
        f"{_option_of(str(fault.get('field')))} {fault.get('detail')}"
        f"{suggestions.suggest_value(str(fault.get('detail')))}"
        for fault in faults[:FAULTS_MAX]
    )
    if more:
        detail = "1 field is invalid" if len(faults) == 1 else f"{len(faults)} fields are invalid"
    elif error_code == "version_conflict":
        detail += _versions(fields)
    elif code is exit_codes.ExitCode.USAGE:
        detail += suggestions.suggest_value(detail)
    tries = next_commands(error_code, code)
    if error_code == "not_found" and "release_id" in fields:
        tries = ("tidegate rev list --lifecycle Published",)
    if error_code == "not_found" and "repository" in fields:
        tries = ("tidegate repo list",)
    if error_code == "missing_permission" and fields.get("role"):
        more = (f"A security-admin can grant it to you: {_grant(fields)}",)
    if error_code == "destination_refused" and fields.get("allow") and _verb()[0] == "notify":
        detail += f'. The server\'s settings can allow it: [notify] allowed = ["{fields["allow"]}"]'
        tries = ("tidegate serve --config FILE",)
    if status >= 500 and "x-request-id" in headers:
        detail += f" (request {headers['x-request-id']})"
    line = f"{detail} [{error_code}]" if error_code else detail
    return exit_codes.CommandExit(code, line, *tries, more=more, problem=document)


# Fields of a request → the option or argument with another name that sets them.
MEMBERS: Final = {
    "roles": "granted",
    "closure_hash": "artifact",
    "host_id": "host",
    "release_id": "release",
    "login": "login_name",
    "hosts": "selector",
}


def _option_of(field: str) -> str:
    """The option or argument of the current command for a field of the request, or its path."""
    ctx = click.get_current_context(silent=True)
    path = field.removeprefix("body.").removeprefix("query.").removeprefix("path.")
    name = path.partition(".")[0].partition("[")[0]
    if ctx is None:
        return path
    for param in ctx.command.params:
        if param.name in (name, MEMBERS.get(name)):
            is_option = isinstance(param, click.Option)
            return (
                param.opts[0]
                if is_option
                else re.sub(r"^\[(.*)\](?:\.\.\.)?$", r"\1", param.make_metavar(ctx))
            )
    return path


def _grant(fields: Mapping[str, Any]) -> str:
    """The command with which an administrator grants the smallest sufficient role.

    If a role on any scope would do, the scope is the channel that the current command names.
    """
    scope = fields.get("scope")
    ctx = click.get_current_context(silent=True)
    if scope == "any" and ctx is not None:
        named = ctx.params.get("channel") or ctx.params.get("rollout")
        scope = f"channel:{named.partition('@')[0]}" if isinstance(named, str) else scope
    where = "" if scope in (None, "any", "*") else f"@{scope}"
    return f"tidegate user grant LOGIN {fields['role']}{where}"


def _document(body: bytes) -> dict[str, Any] | None:
    """Parse a problem document; None: the response is not one."""
    try:
        found = json.loads(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _versions(fields: Mapping[str, Any]) -> str:
    current = fields.get("current", fields.get("found"))
    if current is None:
        return ""
    return f" (you saw version {fields.get('expected')}, it is at {current})"


def next_commands(error_code: str, code: exit_codes.ExitCode) -> tuple[str, ...]:
    """The commands to try after this error code, completed for the current command."""
    noun, path, name = _verb()
    if error_code in NEXT:
        wanted = NEXT[error_code]
    elif code is exit_codes.ExitCode.NOT_FOUND:
        wanted = (LISTS.get(noun, "--help"),)
    elif code is exit_codes.ExitCode.UNAVAILABLE:
        wanted = ("doctor", "whoami")
    elif code is exit_codes.ExitCode.USAGE:
        wanted = ("{path} --help",)
    elif code is exit_codes.ExitCode.PERMISSION:
        wanted = ("whoami",)
    else:
        wanted = (LOOKS.get(noun, "{path} --help") if name else LISTS.get(noun, "{path} --help"),)
    listed = LISTS.get(noun, f"{path} --help")
    filled = [text.format(name=name or "…", path=path, list=listed) for text in wanted]
    return tuple(f"tidegate {text}" for text in filled)


def type_again(*more: str) -> str:
    """The current command as it was typed, with ``more`` appended. Shared flags are omitted,
    because one of them is a secret.
    """
    ctx = click.get_current_context()
    words = [_verb()[1]]
    for param in ctx.command.params:
        name = param.name or ""
        if ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        if isinstance(param, click.Option) and param.is_flag:
            words.append(param.opts[0])
            continue
        value = ctx.params.get(name)
        for item in value if isinstance(value, tuple) else (value,):
            if item is None or item == "":
                continue
            words += [param.opts[0]] if isinstance(param, click.Option) else []
            words.append(shlex.quote(str(item)))
    return " ".join(("tidegate", *words, *more))


def _verb() -> tuple[str, str, str]:
    """The noun, the path below the root and the first subject of the current command."""
    ctx = click.get_current_context(silent=True)
    if ctx is None:
        return "", "", ""
    words = []
    at: click.Context | None = ctx
    while at is not None and at.parent is not None:
        words.append(at.info_name or "")
        at = at.parent
    subjects = (ctx.params.get(key) for key in SUBJECTS)
    name = next((str(value) for value in subjects if isinstance(value, str)), "")
    path = " ".join(reversed(words))
    return (words[-1] if words else ""), path, name
