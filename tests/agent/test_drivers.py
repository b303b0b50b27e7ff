"""Drivers on real directories and with real programs; content is verified before it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from stat import S_IMODE
from threading import Event, Thread

import pytest

from tests.agent.single_host import CHANNEL, NEW, OLD, ContentSource, closure_of
from tidegate.agent.config import ChannelSettings
from tidegate.agent.content import provide
from tidegate.agent.drivers import (
    CommandDriver,
    RunningArtifacts,
    Staged,
    Switched,
    SwitchFailed,
    SwitchRequest,
    SymlinkDriver,
)
from tidegate.agent.errors import ContentMismatch, ServerAway
from tidegate.domain.content.digests import digest_of, encode
from tidegate.domain.content.entries import File
from tidegate.domain.content.manifests import FileManifest
from tidegate.domain.hosts.protocol import ReleaseContent

TO_OLD = SwitchRequest(closure_of(OLD), "", "/old")
TO_NEW = SwitchRequest(closure_of(NEW), closure_of(OLD), "/new")
BACK = SwitchRequest(closure_of(OLD), closure_of(NEW), "")


@pytest.fixture
def content_source() -> ContentSource:
    return ContentSource(old=OLD, new=NEW)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    path.mkdir()
    return path


def contents(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


# ── content ──


def test_installs_exactly_what_the_digest_names(
    tmp_path: Path, content_source: ContentSource
) -> None:
    found = provide(closure_of(NEW), "/new", tmp_path, content_source)

    assert contents(found) == NEW
    assert found.name == closure_of(NEW).replace(":", "-")


def test_refuses_content_of_another_digest_and_leaves_nothing(tmp_path: Path) -> None:
    content_source = ContentSource(new={**NEW, "app.txt": b"evil"})

    with pytest.raises(ContentMismatch):
        provide(closure_of(NEW), "/new", tmp_path, content_source)

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_refuses_a_file_that_differs_from_its_listing(tmp_path: Path) -> None:
    class Swapped(ContentSource):
        def body(self, content: str, hashed: str) -> bytes:
            return super().body(content, hashed) + b"!"

    with pytest.raises(ContentMismatch, match="expected"):
        provide(closure_of(NEW), "/new", tmp_path, Swapped(new=NEW))


class Sly(ContentSource):
    """A server with an arbitrary file list; every file is ``x``."""

    def __init__(self, *files: File) -> None:
        super().__init__()
        self.files = files

    def listing(self, content: str) -> ReleaseContent:
        return ReleaseContent("web.2", "", self.files)

    def body(self, content: str, hashed: str) -> bytes:
        return b"x"


X = sha256(b"x").hexdigest()
OUTSIDE = ["../out.txt", "/etc/x", "a//b", "a/./b", "a/../../b", "nul\0", "a\nb", "a\\b", "s" * 256]


@pytest.mark.parametrize("path", OUTSIDE)
def test_refuses_every_path_that_the_server_refuses(tmp_path: Path, path: str) -> None:
    files = (File(path, X, 1),)
    place = tmp_path / "place"

    with pytest.raises(ContentMismatch, match="is no path of a file"):
        provide(digest_of(encode(files)), "/new", place, Sly(*files))

    assert not place.exists()


@pytest.mark.parametrize("paths", [("a", "a"), ("a", "a/b"), ("caf\u00e9", "cafe\u0301")])
def test_refuses_paths_that_contradict_each_other(tmp_path: Path, paths: tuple[str, str]) -> None:
    files = tuple(File(path, X, 1) for path in paths)

    with pytest.raises(ContentMismatch, match="another file has this path"):
        provide(digest_of(encode(files)), "/new", tmp_path / "place", Sly(*files))

    assert not (tmp_path / "place").exists()


def test_installs_no_other_file_set_under_the_digest_of_an_approved_one(tmp_path: Path) -> None:
    """A newline in a path once gave one file the same digest as two others."""
    honest = (File("a", X, 1), File("b", X, 1))
    sly = File(f"a\n{X}  b", X, 1)

    with pytest.raises(ContentMismatch):
        provide(FileManifest(honest).digest, "/new", tmp_path / "place", Sly(sly))

    assert not (tmp_path / "place").exists()


# ── modes ──


def modes(directory: Path) -> dict[str, int]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {path.name: S_IMODE(path.stat().st_mode) for path in files}


@pytest.fixture(params=[0o022, 0o077, 0o000])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    try:
        yield
    finally:
        os.umask(before)


PROGRAMS = frozenset({"app.txt"})
EXECUTABLE = {"app.txt": 0o755, "site.css": 0o644, "new.js": 0o644}


@pytest.mark.usefixtures("umask")
def test_makes_programs_executable_and_nothing_else(
    tmp_path: Path, content_source: ContentSource
) -> None:
    content_source.executables = PROGRAMS

    found = provide(closure_of(NEW, PROGRAMS), "/new", tmp_path, content_source)

    assert modes(found) == EXECUTABLE


@pytest.mark.usefixtures("umask")
def test_makes_directories_that_others_can_read_and_not_write(
    tmp_path: Path, content_source: ContentSource
) -> None:
    root = tmp_path / "srv"
    found = provide(closure_of(NEW), "/new", root / "releases", content_source)

    directories = {root, found.parent, found, *(path for path in found.rglob("*") if path.is_dir())}
    assert len(directories) > 3
    assert {S_IMODE(path.stat().st_mode) for path in directories} == {0o755}


def test_installs_no_program_that_was_approved_as_a_plain_file(
    tmp_path: Path, content_source: ContentSource
) -> None:
    content_source.executables = PROGRAMS

    with pytest.raises(ContentMismatch):
        provide(closure_of(NEW), "/new", tmp_path, content_source)

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_repairs_a_program_that_lost_its_executable_bit(
    tmp_path: Path, content_source: ContentSource, mode: int
) -> None:
    content_source.executables = PROGRAMS
    found = provide(closure_of(NEW, PROGRAMS), "/new", tmp_path, content_source)
    (found / "app.txt").chmod(mode)

    assert modes(provide(closure_of(NEW, PROGRAMS), "/new", tmp_path, content_source)) == EXECUTABLE


@pytest.mark.parametrize("name", ["a\nb", "n\udcffn"])
def test_fetches_again_if_the_directory_has_a_foreign_file(
    tmp_path: Path, content_source: ContentSource, name: str
) -> None:
    found = provide(closure_of(NEW), "/new", tmp_path, content_source)
    (found / name).write_text("x")

    assert contents(provide(closure_of(NEW), "/new", tmp_path, content_source)) == NEW


def test_resumes_an_interrupted_fetch(tmp_path: Path) -> None:
    class Breaking(ContentSource):
        def file(
            self,
            content: str,
            hashed: str,
            bytes_max: int,
            write: Callable[[bytes], object],
            start: int = 0,
        ) -> None:
            if self.asked == 3:
                self.is_away = True
            super().file(content, hashed, bytes_max, write, start)

    content_source = Breaking(new=NEW)
    with pytest.raises(ServerAway):
        provide(closure_of(NEW), "/new", tmp_path, content_source)
    assert not (tmp_path / closure_of(NEW).replace(":", "-")).exists()
    content_source.is_away = False
    asked = content_source.asked

    assert contents(provide(closure_of(NEW), "/new", tmp_path, content_source)) == NEW
    assert content_source.asked - asked == 2, "the listing, and the one file that was missing"


def test_fetches_a_changed_file_again(tmp_path: Path, content_source: ContentSource) -> None:
    found = provide(closure_of(NEW), "/new", tmp_path, content_source)
    (found / "app.txt").write_text("changed")

    assert contents(provide(closure_of(NEW), "/new", tmp_path, content_source)) == NEW


# ── symlink ──


def test_swaps_the_link_and_keeps_what_ran_before(
    root: Path, content_source: ContentSource
) -> None:
    driver = SymlinkDriver(root, content_source)
    assert driver.current() == ""

    assert driver.switch(TO_OLD) == Switched()
    assert driver.switch(TO_NEW) == Switched()

    assert driver.current() == closure_of(NEW)
    assert contents(root / "current") == NEW
    assert (root / "current").is_symlink()
    assert len(list((root / "releases").iterdir())) == 2


def test_rolls_back_without_the_server(root: Path, content_source: ContentSource) -> None:
    driver = SymlinkDriver(root, content_source)
    driver.switch(TO_OLD)
    driver.switch(TO_NEW)
    (root / "current" / "written-by-the-app").write_text("x")
    content_source.is_away = True

    assert driver.switch(BACK) == Switched()

    assert driver.current() == closure_of(OLD)


def test_reports_that_no_rollback_is_possible(root: Path, content_source: ContentSource) -> None:
    driver = SymlinkDriver(root, content_source)

    outcome = driver.switch(BACK)

    assert isinstance(outcome, SwitchFailed)
    assert "no way back" in outcome.stderr_tail


def test_switches_nothing_when_the_content_is_wrong(
    root: Path, content_source: ContentSource
) -> None:
    driver = SymlinkDriver(root, content_source)
    driver.switch(TO_OLD)
    content_source.releases["/new"] = {"app.txt": b"evil"}

    outcome = driver.switch(TO_NEW)

    assert isinstance(outcome, SwitchFailed)
    assert outcome.exit_code == -3
    assert driver.current() == closure_of(OLD)


def test_does_not_replace_a_directory_in_the_place_of_the_link(
    root: Path, content_source: ContentSource
) -> None:
    (root / "current").mkdir()
    (root / "current" / "precious").write_text("x")

    outcome = SymlinkDriver(root, content_source).switch(TO_NEW)

    assert isinstance(outcome, SwitchFailed)
    assert (root / "current" / "precious").read_text() == "x"


def test_readers_see_the_old_or_the_new_content_at_all_times(
    root: Path, content_source: ContentSource
) -> None:
    driver = SymlinkDriver(root, content_source)
    driver.switch(TO_OLD)
    seen: set[bytes] = set()
    done = Event()

    def read() -> None:
        while not done.is_set():
            seen.add((root / "current" / "app.txt").read_bytes())

    reader = Thread(target=read)
    reader.start()
    for _ in range(100):
        driver.switch(TO_NEW)
        driver.switch(BACK)
    done.set()
    reader.join()

    assert seen <= {b"one", b"two"}


def test_removes_content_that_no_rollback_needs(root: Path) -> None:
    content_source = ContentSource(old=OLD, new=NEW, third={"app.txt": b"three"})
    driver = SymlinkDriver(root, content_source)
    driver.switch(TO_OLD)
    driver.switch(TO_NEW)
    driver.switch(SwitchRequest(closure_of({"app.txt": b"three"}), closure_of(NEW), "/third"))

    driver.keep({closure_of(NEW)})

    kept = {path.name for path in (root / "releases").iterdir()}
    wanted = (closure_of(NEW), closure_of({"app.txt": b"three"}))
    assert kept == {closure.replace(":", "-") for closure in wanted}


# ── command ──


def command(
    tmp_path: Path, content_source: ContentSource, script: str, seconds: float = 60.0
) -> CommandDriver:
    state = tmp_path / "state"
    state.mkdir(exist_ok=True)
    argv = (sys.executable, "-c", script)
    channel = ChannelSettings(driver="command", command=argv, timeout_seconds=seconds)
    return CommandDriver(CHANNEL, channel, state, RunningArtifacts(state), content_source)


def test_passes_a_program_what_to_run_and_what_ran(
    tmp_path: Path, content_source: ContentSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_AGENT_TOKEN", "secret")
    out = tmp_path / "out"
    script = (
        "import os, pathlib\n"
        f"out = pathlib.Path({str(out)!r})\n"
        "names = ['CHANNEL', 'TARGET', 'PRIOR', 'AGENT_TOKEN']\n"
        "text = [os.environ.get('TIDEGATE_' + name, '-') for name in names]\n"
        "text.append(pathlib.Path(os.environ['TIDEGATE_CONTENT'], 'app.txt').read_text())\n"
        "out.write_text(' '.join(text))\n"
    )
    driver = command(tmp_path, content_source, script)

    assert driver.switch(TO_NEW) == Switched()

    assert out.read_text() == f"{CHANNEL} {closure_of(NEW)} {closure_of(OLD)} - two"
    assert driver.current() == closure_of(NEW)


def test_reports_how_a_program_failed(tmp_path: Path, content_source: ContentSource) -> None:
    driver = command(
        tmp_path, content_source, "import sys; sys.exit('it does not start; $(reboot)')"
    )

    assert driver.switch(TO_NEW) == SwitchFailed(1, "it does not start; $(reboot)\n")
    assert driver.current() == ""


def test_kills_a_program_that_takes_too_long_with_its_children(
    tmp_path: Path, content_source: ContentSource
) -> None:
    pids = tmp_path / "pids"
    script = (
        "import subprocess, sys, pathlib, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"pathlib.Path({str(pids)!r}).write_text(f'{{child.pid}}\\n')\n"
        "time.sleep(60)\n"
    )
    for seconds in (1, 4, 16):  # until the program has started a child
        outcome = command(tmp_path, content_source, script, seconds=seconds).switch(TO_NEW)
        assert outcome == SwitchFailed(-4, f"killed after {seconds} s")
        if pids.exists() and pids.read_text().endswith("\n"):
            break

    assert _ends(int(pids.read_text()))


def test_learns_from_a_program_that_a_reboot_is_needed(
    tmp_path: Path, content_source: ContentSource
) -> None:
    script = "import sys; print('kernel', file=sys.stderr); sys.exit(75)"

    assert command(tmp_path, content_source, script).switch(TO_NEW) == Staged("kernel")


def test_ends_the_program_of_an_agent_that_was_killed(
    tmp_path: Path, content_source: ContentSource
) -> None:
    """Two switches at once would undo each other."""
    driver = command(tmp_path, content_source, "pass")
    orphan = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True
    )
    began = Path(f"/proc/{orphan.pid}/stat").read_text().rpartition(")")[2].split()[19]
    (tmp_path / "state" / f"{CHANNEL}.child").write_text(f"{orphan.pid} {began}")

    assert driver.switch(TO_NEW) == Switched()

    assert orphan.wait(60) == -signal.SIGKILL


def _ends(pid: int) -> bool:
    for _ in range(3_000):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False
