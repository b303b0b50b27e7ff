"""``tidegate doctor`` and the settings, as an operator uses them."""

from __future__ import annotations

import json
import tomllib
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from tests.operations.processes import opened, prepared, run
from tidegate.clock import system_clock
from tidegate.commands.options import WORDS, commented_default
from tidegate.commands.startup import open_installation
from tidegate.config import FILE_ONLY, NAMES, Settings, load
from tidegate.control import doctor
from tidegate.control.doctor import DoctorFinding, DoctorVerdict
from tidegate.domain.fleet.rows import LIVENESS, Liveness
from tidegate.domain.fleet.slices import EnrollHost, enroll_host
from tidegate.kernel.model import Meta


def verdicts(output: str) -> dict[str, str]:
    found = [json.loads(line) for line in output.splitlines()]
    return {item["what"]: item["verdict"] for item in found}


def test_reports_a_new_installation_as_healthy(tmp_path: Path) -> None:
    prepared(tmp_path / "data")

    ran = run("doctor", "--data", str(tmp_path / "data"), "--views", "-o", "jsonl")

    assert ran.returncode == 0, ran.stdout
    found = verdicts(ran.stdout)
    listed = json.loads(run("-o", "json", "doctor", "--data", str(tmp_path / "data")).stdout)
    assert {item["what"] for item in listed} == set(found) - {"views"}
    assert {"sqlite", "data", "secret", "disk", "log", "clock", "outbox", "views"} <= set(found)
    assert "ill" not in found.values()


def test_names_a_remedy_for_each_problem(tmp_path: Path) -> None:
    data = tmp_path / "data"
    prepared(data)
    data.chmod(0o755)

    ran = run("doctor", "--data", str(data))

    assert ran.returncode == 1
    assert "✘ data: others can read data" in ran.stdout
    assert f"do: chmod 0700 {data}" in ran.stdout


def test_reports_a_missing_installation_and_creates_nothing(tmp_path: Path) -> None:
    ran = run("doctor", "--data", str(tmp_path / "nowhere"))

    assert ran.returncode == 1
    assert not (tmp_path / "nowhere").exists()


def test_detects_a_clock_that_is_behind_the_log(tmp_path: Path) -> None:
    prepared(tmp_path / "data")
    late = open_installation(
        Settings(data=str(tmp_path / "data")), lambda: system_clock() - timedelta(hours=1)
    )
    try:
        found = {finding.what: finding for finding in doctor.check_installation(late)}
    finally:
        late.close()

    assert found["clock"].verdict is DoctorVerdict.ILL
    assert "set the clock" in found["clock"].advice


def test_detects_a_row_that_contradicts_the_log(tmp_path: Path) -> None:
    from tests.operations.tampering import tamper

    prepared(tmp_path / "data")
    tamper(tmp_path / "data", "DELETE FROM users")
    with opened(tmp_path / "data") as installation:
        found = doctor.check_views(installation)

    assert found.verdict is DoctorVerdict.ILL
    assert "users/user_admin0000" in found.detail


def test_prints_settings_that_change_nothing(tmp_path: Path) -> None:
    ran = run("serve", "--print-config")
    assert ran.returncode == 0
    assert ran.stdout == commented_default()
    assert tomllib.loads(ran.stdout) == {}

    file = tmp_path / "tidegate.toml"
    file.write_text("\n".join(uncommented(ran.stdout)))

    assert load({}, {}, file) == Settings(data="tidegate-data")


def uncommented(text: str) -> list[str]:
    """Return the settings of the printed file as if all of them were set."""
    lines = [line.removeprefix("# ") for line in text.split("[targets")[0].splitlines()]
    return [line for line in lines if line.split(" = ")[0] in NAMES]


def test_explains_every_setting() -> None:
    assert set(WORDS) == set(NAMES)
    assert len(uncommented(commented_default())) == len(NAMES) - len(FILE_ONLY)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in FILE_ONLY])
def test_accepts_every_setting_as_a_flag(name: str) -> None:
    from tidegate.commands.serve import serve

    flags = {flag for option in serve.params for flag in option.opts}

    assert f"--{name.replace('_', '-')}" in flags


def test_prints_findings_as_json_without_absent_members() -> None:
    finding = DoctorFinding("disk", DoctorVerdict.WELL, "much")

    assert msgspec.json.encode(finding) == b'{"what":"disk","verdict":"well","detail":"much"}'


def test_warns_that_nobody_is_on_call(tmp_path: Path) -> None:
    def look() -> DoctorFinding:
        with opened(tmp_path / "data") as installation:
            found = {item.what: item for item in doctor.check_installation(installation)}
        return found["on call"]

    nobody = look()
    prepared(tmp_path / "data")

    assert nobody.verdict is DoctorVerdict.NOTE
    assert "no user may roll a channel back at once" in nobody.detail
    assert look().verdict is DoctorVerdict.WELL


def test_names_the_hosts_whose_agent_is_too_old(tmp_path: Path) -> None:
    prepared(tmp_path / "data")
    with opened(tmp_path / "data") as installation:
        meta = Meta(actor="user_op")
        enroll = EnrollHost(host_id="web-01", public_key="ab" * 32, operator="user_op")
        installation.control.execute(enroll_host, enroll, meta=meta)
        said = Liveness(host_id="web-01", last_seen_at=system_clock(), agent_version="0.0.9")
        installation.records(meta).save(LIVENESS.name, "web-01", said)

        found = {item.what: item for item in doctor.check_installation(installation)}

    assert found["agents"].verdict is DoctorVerdict.NOTE
    assert found["agents"].detail.endswith(": web-01")
    assert "tidegate host list --old-agent" in found["agents"].advice
