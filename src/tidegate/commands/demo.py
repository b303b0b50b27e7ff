"""``tidegate demo``: a running installation to try; it is deleted at the end."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click

from tidegate.config import PORT_DEFAULT, InvalidSetting, check_settings

HOST: Final = "127.0.0.1"
SPEED: Final = 60.0
SPEED_MAX: Final = 600.0


@click.command()
@click.option("--data", metavar="DIR", help="An empty or new directory; default: a temporary one.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="The port to listen on; default: a free one."
)
@click.option(
    "--speed",
    type=click.FloatRange(1.0, SPEED_MAX),
    default=SPEED,
    show_default=True,
    help="How much shorter waits are: a soak of 10 minutes takes 10 s at 60.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(0.0, min_open=True),
    help="How long it runs; default: until Ctrl-C.",
)
def demo(data: str | None, port: int | None, speed: float, minutes: float | None) -> None:
    """Run an installation to try, with 300 simulated hosts in three channels.

    Simulated people draft, approve and promote; waves advance; a bad release is rolled back and
    quarantined; a receiver of webhooks is down for a while. The server and worker are real.
    """
    with ExitStack() as stack:
        if data is None:
            data = stack.enter_context(TemporaryDirectory(prefix="tidegate-demo-"))
        elif Path(data).exists() and any(Path(data).iterdir()):
            raise InvalidSetting(f"{data} is not empty; a demo begins with nothing", setting="data")
        chosen = _free_port() if port is None or port == 0 else port
        settings = check_settings({"data": data, "host": HOST, "port": chosen})
        import logging

        from tidegate import main
        from tidegate.demo.servers import run_demo

        main.log_to_stderr(logging.WARNING)
        began = time.monotonic()

        def say(text: str) -> None:
            seconds = int(time.monotonic() - began)
            click.echo(f"{seconds // 60:02}:{seconds % 60:02}  {text}")

        say(f"setting up, at {speed:g}× speed; Ctrl-C ends it")
        run_demo(settings, speed=speed, minutes=minutes, say=say)


def _free_port() -> int:
    """The default port, or any free one if it is taken."""
    for wanted in (PORT_DEFAULT, 0):
        with closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, wanted))
            except OSError:
                continue
            port: int = probe.getsockname()[1]
            return port
    raise InvalidSetting("no port is free on loopback", setting="port")
