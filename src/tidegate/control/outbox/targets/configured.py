"""Make the targets that the settings name."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct, structs

from tidegate.clock import Clock
from tidegate.config import InvalidSetting, Settings, TargetSetting
from tidegate.control.outbox.targets import Target, TargetDone, TargetFailed, command, file, webhook
from tidegate.errors import Invalid, NotFound
from tidegate.public_addresses import DestinationRefused, parse_destination

Configured = webhook.WebhookTarget | command.CommandTarget | file.FileTarget


class TargetUnknown(NotFound):
    """The settings name no target for this operation."""

    code = "target_unknown"

    def __init__(self, name: str) -> None:
        super().__init__(f"the settings have no [targets.{name}]", target=name)


class Described(Struct, frozen=True, kw_only=True):
    """A target as anyone may see it, without secrets."""

    name: str  # the operation
    kind: str
    to: str
    observable: bool


def configure_targets(settings: Settings, clock: Clock) -> dict[str, Target]:
    """Make the target of each operation.

    Raises:
        InvalidSetting: names the operation, and what is wrong with its target.
    """
    found: dict[str, Target] = {}
    for operation, setting in settings.targets.items():
        try:
            found[operation] = _target(setting, clock)
        except Invalid as error:
            setting_name = f"targets.{operation}"
            raise InvalidSetting(f"{setting_name}: {error.detail}", setting=setting_name) from None
    return found


def describe_targets(settings: Settings) -> tuple[Described, ...]:
    """Describe all targets of the settings, by name."""
    return tuple(
        Described(
            name=name,
            kind=setting.kind,
            to=_place(setting),
            observable=setting.observable or bool(setting.observing) or setting.kind == "file",
        )
        for name, setting in sorted(settings.targets.items())
    )


def _place(setting: TargetSetting) -> str:
    """Describe a target without URL path, query or program arguments, which may hold secrets."""
    match setting.kind:
        case "webhook":
            try:
                found = parse_destination(setting.url, setting.allowed)
            except DestinationRefused:
                return ""
            return structs.replace(found, target="").url
        case "command":
            return setting.program[0] if setting.program else ""
        case "file":
            return setting.directory


def try_target(settings: Settings, name: str, clock: Clock) -> TargetDone | TargetFailed:
    """Test whether the target would accept an effect, as far as possible without sending one.

    Raises:
        TargetUnknown.
    """
    setting = settings.targets.get(name)
    if setting is None:
        raise TargetUnknown(name)
    try:
        return _target(setting, clock).try_out()
    except Invalid as error:
        return TargetFailed(error.detail, retryable=False)


def _target(setting: TargetSetting, clock: Clock) -> Configured:
    match setting.kind:
        case "webhook":
            return webhook.WebhookTarget(
                setting.url,
                _read_secrets(setting.secret_file),
                allowed=setting.allowed,
                observable=setting.observable,
                clock=clock,
            )
        case "command":
            return command.CommandTarget(setting.program, observing=setting.observing or None)
        case "file":
            return file.FileTarget(setting.directory)


def _read_secrets(name: str) -> tuple[str, ...]:
    """Read the secrets of a file, one per line. Raises: InvalidSetting."""
    if not name:
        raise InvalidSetting("a webhook has a secret_file, by which its receiver knows us")
    path = Path(name)
    try:
        if path.stat().st_mode & 0o077:
            raise InvalidSetting(f"{path.name} can be read by others; chmod 0600 it")
        found = tuple(path.read_text(encoding="ascii", errors="replace").split())
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InvalidSetting(f"secret_file {path.name!r} cannot be read: {reason}") from None
    if not 1 <= len(found) <= webhook.SECRETS_MAX:
        raise InvalidSetting(
            f"secret_file {path.name!r} holds one secret, or the new one and the previous one on "
            f"the next line; found {len(found)}"
        )
    return found
