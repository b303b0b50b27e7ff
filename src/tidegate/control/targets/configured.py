"""The targets that the settings name, ready to be asked."""

from __future__ import annotations

from pathlib import Path

from tidegate.clock import Clock
from tidegate.config import InvalidSetting, Settings, TargetSetting
from tidegate.control.targets import Target
from tidegate.control.targets.command import CommandTarget
from tidegate.control.targets.file import FileTarget
from tidegate.control.targets.webhook import WebhookTarget
from tidegate.errors import Invalid


def configured(settings: Settings, clock: Clock) -> dict[str, Target]:
    """The target of each operation.

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


def _target(setting: TargetSetting, clock: Clock) -> Target:
    match setting.kind:
        case "webhook":
            return WebhookTarget(
                setting.url,
                _secret(setting.secret_file),
                allowed=setting.allowed,
                observable=setting.observable,
                clock=clock,
            )
        case "command":
            return CommandTarget(setting.program, observing=setting.observing or None)
        case "file":
            return FileTarget(setting.directory)


def _secret(name: str) -> bytes:
    if not name:
        raise InvalidSetting("a webhook has a secret_file, by which its receiver knows us")
    path = Path(name)
    try:
        if path.stat().st_mode & 0o077:
            raise InvalidSetting(f"{path.name} can be read by others; chmod 0600 it")
        return path.read_bytes().strip()
    except OSError as error:
        said = error.strerror or type(error).__name__
        raise InvalidSetting(f"secret_file {path.name!r} cannot be read: {said}") from None
