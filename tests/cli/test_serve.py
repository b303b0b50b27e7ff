"""What ``serve`` and ``agent`` print when they cannot start: the reason and the remedy."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.shell import Shell
from tidegate.commands.options import EVERY


def test_reports_that_its_port_is_taken(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        ran = Shell(tmp_path / "home").run("serve", "--data", str(data), "--port", str(port))

    assert ran.code == 6, ran.err
    assert f"port {port} on 127.0.0.1 is taken by another process" in ran.err
    assert "[address_unusable]" in ran.err
    assert "try: tidegate serve --port …" in ran.err
    assert "serving on" not in ran.err
    assert "Traceback" not in ran.err


def test_names_the_ways_to_give_a_data_directory(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home")
    for words in ("serve", "doctor", "views rebuild", "worker --archive a"):
        ran = shell.run(*words.split())

        told, hint = ran.err.splitlines()
        assert ran.code == 2
        assert told == (
            "✘ settings lack data, the data directory: say --data DIR, or set TIDEGATE_DATA "
            "[invalid_setting]"
        )
        assert hint == f"  try: tidegate {words.partition(' --')[0]} --data DIR"


def test_an_invalid_setting_does_not_suggest_a_command_that_reads_it(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home")
    shell.environ["TIDEGATE_PORT"] = "x"
    ran = shell.run("doctor", "--data", str(tmp_path))

    assert (ran.code, ran.err.splitlines()[-1]) == (2, "  try: tidegate doctor --help"), ran.err


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        ("backup", "data store"),
        ("restore", "data store"),
        ("doctor", "data store"),
        ("simulate", "data store"),
        ("views verify", "data store"),
        ("archive verify", "data store archive"),
        ("worker", "data store public-url worker-metrics-port archive"),
    ],
)
def test_a_command_has_flags_only_for_the_settings_that_it_uses(
    tmp_path: Path, words: str, settings: str
) -> None:
    shown = Shell(tmp_path / "home").run(*words.split(), "--help").out

    flags = {name.replace("_", "-") for name in EVERY if f"--{name.replace('_', '-')} " in shown}
    assert flags == set(settings.split())
    assert "--config FILE" in shown


def test_serve_has_a_flag_for_every_setting(tmp_path: Path) -> None:
    shown = Shell(tmp_path / "home").run("serve", "--help").out

    assert all(f"--{name.replace('_', '-')} VALUE" in shown for name in EVERY)


def test_an_agent_does_not_suggest_the_doctor_of_the_server(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home")
    settings = tmp_path / "agent.toml"
    settings.write_text(
        f'server = "http://127.0.0.1:9"\nstate = "{tmp_path / "state"}"\n'
        f'[channels.web]\ndriver = "symlink"\nroot = "{tmp_path / "root"}"\n'
    )

    unset = shell.run("agent", "--config", str(tmp_path / "none.toml"))
    new = shell.run("agent", "--config", str(settings))

    assert (unset.code, "try: tidegate agent --help" in unset.err) == (2, True), unset.err
    assert (new.code, "try: tidegate host enroll …" in new.err) == (1, True), new.err
    assert "doctor" not in unset.err + new.err


def test_a_backup_that_cannot_be_used_suggests_the_command_with_another_place(
    tmp_path: Path,
) -> None:
    shell = Shell(tmp_path / "home")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()

    empty = shell.run("restore", str(tmp_path / "full"), "--data", str(tmp_path / "new"))
    taken = shell.run("restore", str(tmp_path / "full"), "--data", str(tmp_path / "full"))

    for ran in (empty, taken):
        assert (ran.code, "try: tidegate restore DIR --data NEW" in ran.err) == (1, True), ran
    assert "holds no backup: backup.json: No such file or directory [" in empty.err


def test_suggests_the_doctor_with_the_place_that_was_typed(tmp_path: Path) -> None:
    ran = Shell(tmp_path / "home").run("views", "verify", "--data", str(tmp_path / "none"))

    assert f"try: tidegate doctor --data {tmp_path / 'none'}" in ran.err
