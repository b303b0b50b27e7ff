"""The first five minutes: a new server, two people, one published revision."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tests.cli.shell import Shell
from tests.servers.process import free_port, serving, speaks_http


def test_goes_from_an_empty_directory_to_a_published_revision(tmp_path: Path) -> None:
    port = free_port()
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    ada, bob = Shell(tmp_path / "ada"), Shell(tmp_path / "bob")
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text("<h1>tide</h1>\n")

    with serving(
        [sys.executable, "-m", "tidegate", "serve", "--data", str(data), "--port", str(port)],
        ready=lambda: speaks_http(port),
        log=tmp_path / "server.log",
        cwd=tmp_path,
        stop_signal=signal.SIGTERM,
    ):
        url = f"http://127.0.0.1:{port}"
        code = (data / "setup-code").read_text().strip()
        named = ("--login", "ada", "--name", "Ada", "--password-stdin", "--code", code, "--team")
        steps = [ada.run("setup", "--url", url, *named, stdin="correct horse battery\n")]
        roles = ("--role", "author", "--role", "approver")
        steps += [
            ada.run(
                *("user", "create", name, "--name", name, "--password-stdin", *roles),
                stdin="correct horse battery\n",
            )
            for name in ("bob", "eve")
        ]
        eve = Shell(tmp_path / "eve")
        steps += [
            shell.run(
                "login",
                "--url",
                url,
                "--login",
                name,
                "--password-stdin",
                stdin="correct horse battery\n",
            )
            for shell, name in ((bob, "bob"), (eve, "eve"))
        ]
        steps += [
            bob.run("rev", "create", "web", "--workspace", "v1", "--from", str(site)),
            bob.run("rev", "propose", "web.v1"),
            eve.run("rev", "diff", "web.v1"),
            eve.run("rev", "approve", "web.v1"),
            bob.run("rev", "pull", "web.v1", "out"),
            ada.run("log", "verify"),
        ]
        itself = bob.run("rev", "approve", "web.v1")

    assert [(step.code, step.err) for step in steps if step.code != 0] == []
    assert "published as web.1" in steps[-3].out
    assert (bob.home / "out" / "index.html").read_text() == "<h1>tide</h1>\n"
    assert itself.code in (1, 5)
