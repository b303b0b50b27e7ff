"""Shell completion: the scripts, and names from the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from tidegate.cli import context, exit_codes
from tidegate.cli.root import COMPLETION

if TYPE_CHECKING:
    from socket import socket

    from tidegate.cli.profile import Profile

SHELLS: Final = ("bash", "zsh", "fish")
SECONDS_MAX = 0.5
NAMES_MAX = 100
ANSWER_BYTES_MAX = 1024 * 1024


@click.command(cls=context.VerbCommand)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash:  eval "$(tidegate completion bash)"
    zsh:   eval "$(tidegate completion zsh)"
    fish:  tidegate completion fish | source
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows all three"
    root = click.get_current_context().find_root().command
    click.echo(kind(root, {}, "tidegate", COMPLETION).source())


Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def names(path: str, *field: str, **query: Any) -> Completer:
    """Build a completer for a field of the items of an API list.

    On any error it completes nothing, because errors would disturb the shell's prompt.
    """

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        import json

        from tidegate.cli.output import dig
        from tidegate.cli.paths import located

        try:
            asked = located(path, {"limit": NAMES_MAX, **query})
            page = json.loads(_fetch(ctx.ensure_object(context.CommandContext).profile, asked))
            found = [str(dig(item, *field)) for item in page["items"]]
        except (exit_codes.CommandExit, OSError, ValueError, KeyError, TypeError):
            return []
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]

    return complete


def _fetch(profile: Profile, target: str) -> bytes:
    """Send one quick request. Plain HTTP uses a bare socket, because importing a library would make
    completion slow.

    Raises:
        CommandExit, OSError, ValueError.
    """
    if not profile.url.startswith("http://"):
        from tidegate.cli.client import ApiClient

        client = ApiClient(profile, timeout=SECONDS_MAX)
        client.attempts_max = 1
        return client.get(target).body
    from socket import create_connection
    from urllib.parse import urlsplit

    parts = urlsplit(profile.url)
    lines = [f"GET {target} HTTP/1.0", f"Host: {parts.netloc}", "Accept: application/json"]
    if profile.token is not None:
        lines.append(f"Authorization: Bearer {profile.token}")
    with create_connection((parts.hostname or "", parts.port or 80), SECONDS_MAX) as connection:
        connection.sendall("\r\n".join((*lines, "", "")).encode("ascii"))
        head, _, body = _read(connection).partition(b"\r\n\r\n")
    if head.split(b" ", 2)[1:2] != [b"200"]:
        raise ValueError("not a list")
    return body


def _read(connection: socket) -> bytes:
    """Read until the server closes the connection, as it does with HTTP/1.0."""
    seen = b""
    while len(seen) < ANSWER_BYTES_MAX and (part := connection.recv(65_536)):
        seen += part
    return seen
