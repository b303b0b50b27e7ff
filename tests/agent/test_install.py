"""``agent install`` writes a working unit and settings, starts nothing, and keeps your changes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from shlex import quote

import pytest

from tidegate.agent import install, install_report
from tidegate.agent.config import load
from tidegate.agent.errors import InstallRefused, InvalidAgentSetting
from tidegate.agent.install import (
    InstallPlaces,
    InstallRequest,
    apply_install,
    plan_install,
    render_unit,
    system_places,
    user_places,
)

ROOT = Path(__file__).parents[2]
PROGRAM = ("/usr/local/bin/tidegate-agent",)


def places(tmp: Path) -> InstallPlaces:
    return InstallPlaces(
        config=tmp / "etc/agent.toml",
        token=tmp / "etc/agent.token",
        state=tmp / "state",
        unit=tmp / "units/tidegate-agent.service",
    )


def request(tmp: Path, **members: object) -> InstallRequest:
    chosen = {"server": "https://tidegate.example", "channels": (("web", str(tmp / "web")),)}
    return InstallRequest(program=PROGRAM, places=places(tmp), **{**chosen, **members})  # type: ignore[arg-type]


def parsed(unit: str) -> ConfigParser:
    found = ConfigParser(interpolation=None, strict=False)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read_string(unit)
    return found


def test_writes_settings_that_load_and_a_unit_that_starts_the_agent(tmp_path: Path) -> None:
    plan = plan_install(request(tmp_path))
    assert not (tmp_path / "etc").exists(), "planning writes nothing"

    apply_install(plan)

    settings = load(tmp_path / "etc/agent.toml")
    assert settings.server == "https://tidegate.example"
    assert settings.channels["web"].root == str(tmp_path / "web")
    unit = parsed((tmp_path / "units/tidegate-agent.service").read_text())
    assert unit["Service"]["ExecStart"].split() == [
        *PROGRAM,
        *("--config", f"{tmp_path}/etc/agent.toml"),
        *("--token-file", f"{tmp_path}/etc/agent.token"),
    ]
    assert unit["Service"]["ProtectSystem"] == "strict"
    assert unit["Service"]["ReadWritePaths"] == str(tmp_path / "web")


def test_a_second_run_changes_nothing_and_a_new_option_only_the_unit(tmp_path: Path) -> None:
    apply_install(plan_install(request(tmp_path)))

    again = plan_install(request(tmp_path, server="", channels=()))
    assert [file.change for file in again.files] == ["keep", "keep"]

    config = tmp_path / "etc/agent.toml"
    config.write_text(
        config.read_text() + '\n[channels.db]\ndriver = "symlink"\nroot = "/srv/db"\n'
    )
    changed = plan_install(request(tmp_path))
    assert [file.change for file in changed.files] == ["keep", "replace"]
    assert f"ReadWritePaths={tmp_path}/web /srv/db\n" in changed.files[1].content


@pytest.mark.parametrize("word", ["cache", "a b", "100%", 'say "x"', "back\\slash"])
def test_a_second_run_keeps_the_user_and_the_extra_directories(tmp_path: Path, word: str) -> None:
    further = (str(tmp_path / word), "/srv/further")
    apply_install(plan_install(request(tmp_path, run_as="web", writable=further)))

    again = plan_install(request(tmp_path))

    assert [file.change for file in again.files] == ["keep", "keep"]
    assert again.kept[0].startswith("--run-as web, ")
    assert [line.partition(",")[0] for line in again.kept[1:]] == [
        f"--writable {quote(path)}" for path in further
    ]

    config = tmp_path / "etc/agent.toml"
    config.write_text(config.read_text().replace(f"{tmp_path}/web", "/srv/moved"))
    moved = plan_install(request(tmp_path)).files[1].content
    assert "User=web\n" in moved
    assert f"{tmp_path}/web" not in moved, "the old options of a channel are not kept"


def test_options_of_a_second_run_replace_the_earlier_ones(tmp_path: Path) -> None:
    apply_install(plan_install(request(tmp_path, run_as="web", writable=("/srv/old",))))

    other = plan_install(request(tmp_path, run_as="db", writable=("/srv/new",)))
    root = plan_install(request(tmp_path, run_as="root", writable=("",)))

    assert other.kept == root.kept == ()
    assert "User=db\n" in other.files[1].content
    assert "/srv/old" not in other.files[1].content
    assert "User=" not in root.files[1].content
    assert root.files[1].content == render_unit(request(tmp_path), [str(tmp_path / "web")], None)


def test_names_what_is_missing_and_replaces_no_foreign_unit(tmp_path: Path) -> None:
    with pytest.raises(InstallRefused, match="say --server URL and --channel NAME=DIR"):
        plan_install(request(tmp_path, server="", channels=()))
    unit = tmp_path / "units/tidegate-agent.service"
    unit.parent.mkdir()
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    with pytest.raises(InstallRefused, match="was not written by this command"):
        plan_install(request(tmp_path))
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/agent.toml").write_text("server = 1\n")
    with pytest.raises(InvalidAgentSetting):
        plan_install(request(tmp_path))


def test_prints_the_steps_that_remain(tmp_path: Path) -> None:
    plan = plan_install(request(tmp_path))

    assert plan.next[0] == f"mkdir -p {tmp_path}/web"
    assert any("tidegate host enroll" in command for command in plan.next)
    assert "systemctl enable --now tidegate-agent.service" in plan.next
    mine = plan_install(
        InstallRequest(
            program=PROGRAM,
            places=user_places(tmp_path),
            server="https://tidegate.example",
            channels=(("web", "/srv/web"),),
        )
    )
    assert "systemctl --user enable --now tidegate-agent.service" in mine.next


def test_the_next_commands_give_the_files_to_the_user_of_the_service(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    asked = request(
        tmp_path,
        channels=(("web", f"{tmp_path}/web"), ("db", f"{tmp_path}/there")),
        run_as="web",
        writable=(f"{tmp_path}/a b",),
    )

    plan = plan_install(asked)
    apply_install(plan)

    assert plan.next[:2] == (
        f"install -d -o web {tmp_path}/web",
        f"install -d -o web '{tmp_path}/a b'",
    )
    assert plan.next[2].startswith(f"install -o web -m 600 TOKEN-FILE {tmp_path}/etc/agent.token ")
    assert plan_install(request(tmp_path)).next == plan.next


def test_the_next_commands_create_the_state_directory_of_the_settings(tmp_path: Path) -> None:
    apply_install(plan_install(request(tmp_path)))
    config = tmp_path / "etc/agent.toml"
    config.write_text(config.read_text().replace(f"{tmp_path}/state", f"{tmp_path}/other"))

    plain = plan_install(request(tmp_path))
    other = plan_install(request(tmp_path, run_as="web"))

    assert f"install -d -m 700 {tmp_path}/other" in plain.next
    assert f"install -d -o web -m 700 {tmp_path}/other" in other.next


@pytest.mark.parametrize("word", ["a b", "100%", 'say "x"', "a$b", "back\\slash"])
def test_paths_are_escaped_in_the_unit_and_in_the_settings(tmp_path: Path, word: str) -> None:
    odd = tmp_path / word
    apply_install(plan_install(request(odd)))

    assert load(odd / "etc/agent.toml").channels["web"].root == str(odd / "web")
    verify(odd / "units/tidegate-agent.service")


def test_the_unit_in_packaging_equals_the_written_one() -> None:
    asked = InstallRequest(
        program=PROGRAM,
        places=system_places(),
        server="https://tidegate.example",
        channels=(("web-stable", "/srv/web"),),
    )

    kept = (ROOT / "packaging/tidegate-agent.service").read_text()

    assert kept == render_unit(asked, ["/srv/web"], None)
    unit = parsed(kept)
    assert unit["Install"]["WantedBy"] == "multi-user.target"
    assert unit["Service"]["StateDirectory"] == "tidegate-agent"


@pytest.mark.parametrize("is_user", [False, True], ids=["system", "user"])
def test_systemd_accepts_the_unit(tmp_path: Path, is_user: bool) -> None:
    where = user_places(tmp_path) if is_user else places(tmp_path)
    asked = InstallRequest(
        program=("/bin/true",),
        places=where,
        server="https://tidegate.example",
        channels=(("web", "/srv/web"),),
        run_as="" if is_user else "daemon",
    )
    apply_install(plan_install(asked))

    verify(where.unit)


def verify(unit: Path) -> None:
    """Let systemd check a unit, if systemd is installed here."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        parsed(unit.read_text())
        return
    text = unit.read_text().replace(PROGRAM[0], "/bin/true")  # must exist: systemd checks it
    unit.write_text(text)
    ran = subprocess.run(
        [analyze, "verify", "--man=no", "--recursive-errors=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = [line for line in ran.stderr.splitlines() if unit.name in line]
    assert said == []


def test_the_command_prints_and_writes_nothing_with_dry_run(tmp_path: Path) -> None:
    ran = run(
        tmp_path, "--user", "--dry-run", "--server", "https://t.example", "--channel", "web=/w"
    )

    assert ran.returncode == 0, ran.stderr
    assert f"# would create {tmp_path}/.config/tidegate/agent.toml:" in ran.stdout
    assert "ExecStart=" in ran.stdout
    assert "Nothing was started. Next:" in ran.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_and_reports_it(tmp_path: Path) -> None:
    first = run(tmp_path, "--user", "--server", "https://t.example", "--channel", "web=/w")
    again = run(tmp_path, "--user")
    wrong = run(tmp_path, "--user", "--channel", "web")

    unit = tmp_path / ".config/systemd/user/tidegate-agent.service"
    assert first.returncode == again.returncode == 0, first.stderr + again.stderr
    assert f"wrote {unit}" in first.stdout
    assert f"unchanged: {unit}" in again.stdout
    assert wrong.returncode == 1
    assert "allowed is NAME=DIR with a full path" in wrong.stderr
    assert "[agent_install_refused]" in wrong.stderr


def test_names_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "etc").write_text("a file is in the way")

    with pytest.raises(InstallRefused, match=r"agent\.toml cannot be written: .*--user"):
        apply_install(plan_install(request(tmp_path)))


def run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidegate", "agent", "install", *words],
        cwd=ROOT,
        env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_report_names_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "default_places", lambda is_user: places(tmp_path))
    apply_install(plan_install(request(tmp_path, run_as="web")))

    lines = install_report.install(
        program=PROGRAM,
        is_user=False,
        is_dry=False,
        server="",
        channels=(),
        writable=(),
        run_as="",
    )

    assert "kept --run-as web, as the unit has it; --run-as root changes it" in list(lines)


def test_a_user_of_its_own_needs_no_other() -> None:
    with pytest.raises(InstallRefused, match="leave --run-as out"):
        install_report.install(
            program=PROGRAM,
            is_user=True,
            is_dry=True,
            server="",
            channels=(),
            writable=(),
            run_as="web",
        )
