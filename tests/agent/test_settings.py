"""The agent's settings: an error names what is wrong and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.agent.command import run
from tidegate.agent.config import load
from tidegate.agent.errors import InvalidAgentSetting, NotEnrolled

GOOD = """
server = "http://127.0.0.1:8420"
state = "{state}"

[channels.web-stable]
driver = "symlink"
root = "/srv/web"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "agent.toml"
    path.write_text(GOOD.format(state=tmp_path / "state"))
    return path


def test_reads_a_file(file: Path) -> None:
    settings = load(file)

    assert settings.channels["web-stable"].driver == "symlink"
    assert settings.poll_seconds == 30


def test_a_flag_overrides_the_file(file: Path) -> None:
    assert load(file, state="/var/lib/agent").state == "/var/lib/agent"


@pytest.mark.parametrize(
    ("found", "wrong", "told"),
    [
        ('server = "http://127.0.0.1:8420"', 'server = "ftp://x"', "server"),
        ('server = "http://127.0.0.1:8420"', 'server = "http://example.test"', "https"),
        ('server = "http://127.0.0.1:8420"', "", "server"),
        ('root = "/srv/web"', 'root = "web"', "channels.web-stable.root"),
        ('root = "/srv/web"', "", "channels.web-stable.root"),
        ('driver = "symlink"', 'driver = "magic"', "driver is 'magic'; allowed is one of symlink"),
        ('driver = "symlink"', "", "driver is ''"),
        ("[channels.web-stable]", "[channels.web-stable.more]", "no setting channels.web-stable.m"),
        ('server = "http', 'serverr = "http', "no setting serverr; known are server, state"),
        ("[channels.web-stable]", "[channels]\nweb = 1\n[more]", "no setting more"),
        ("[channels.web-stable]", "[[channels]]", "channels"),
        ('driver = "symlink"', 'driver = "command"', "channels.web-stable.command"),
        ('root = "/srv/web"', 'root = "/srv/web"\nprobes = "p.toml"', "probes"),
        (
            'root = "/srv/web"',
            'root = "/srv/web"\nrooot = 1',
            "no setting channels.web-stable.rooot",
        ),
        ("[channels.web-stable]", "[channels", "not TOML"),
        ("[channels.web", 'reference_directories = ["mnt"]\n[channels.web', "reference_dir"),
        ("[channels.web", 'reference_directories = ["/"]\n[channels.web', "reference_dir"),
        ("[channels.web", 'reference_hosts = ["mirror.internal"]\n[channels.web', "reference_host"),
        ("[channels.web", 'reference_hosts = ["http://x:80"]\n[channels.web', "reference_host"),
        ('server = "http://127.0.0.1:8420"', 'server = "https://x"\npoll_seconds = 0', "poll"),
    ],
)
def test_names_what_is_wrong(file: Path, found: str, wrong: str, told: str) -> None:
    file.write_text(file.read_text().replace(found, wrong))

    with pytest.raises(InvalidAgentSetting, match=told):
        load(file)


def test_names_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InvalidAgentSetting, match="cannot be read"):
        load(tmp_path / "none.toml")


def test_needs_a_token_for_the_first_start(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_AGENT_TOKEN", raising=False)

    with pytest.raises(NotEnrolled, match="one-time token"):
        run(str(file))
