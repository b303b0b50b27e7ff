"""Backups of a running server, and restores of them."""

from __future__ import annotations

import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from threading import Barrier
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.api.serving import serving
from tests.operations.processes import ADMIN, Load, opened, prepared, run, served
from tests.servers.process import free_port
from tidegate.clock import system_clock
from tidegate.commands.startup import open_installation
from tidegate.config import Settings
from tidegate.control.installation import Installation
from tidegate.control.storage.backup import (
    BackupDamaged,
    BackupLabel,
    PlaceTaken,
    back_up,
    read_label,
    restore,
)
from tidegate.control.storage.blobs import BlobsForeign
from tidegate.control.storage.content_store import store_files
from tidegate.domain.access.rows import User, user_key
from tidegate.domain.epochs import FIRST, Epoch, EpochStarted, epoch_key
from tidegate.domain.fleet.refusals import KeyRevoked, TokenRefused
from tidegate.domain.hosts.protocol import enrollment_message
from tidegate.domain.packages.rows import Repository, repository_key
from tidegate.domain.packages.slices import CreateRevision, create_revision
from tidegate.engines.sqlite.copying import copy
from tidegate.engines.sqlite.store import SqliteStore
from tidegate.kernel.model import Meta

BODY = b"workers = 4\n"


def with_content(data: Path) -> None:
    """An installation with a draft whose file is in a blob."""
    prepared(data)
    draft(data, "v1", BODY)


def taken(data: Path, place: Path, previous: Path | None = None) -> BackupLabel:
    with opened(data) as installation:
        return back_up(
            installation,
            lambda path: copy(data / "tidegate.db", path),
            lambda path: SqliteStore(str(path), installation.store.schema),
            place,
            previous,
        )


def draft(data: Path, workspace: str, body: bytes) -> None:
    """Create a draft whose file is in a blob."""
    with opened(data) as installation:
        manifest = store_files(installation.blobs, {"conf/site.toml": body})
        command = CreateRevision(
            repository="default",
            package="web",
            workspace=workspace,
            uid=f"{workspace:u>26}",
            by="user_admin0000",
            files=manifest.files,
        )
        installation.execute.run(create_revision, command, meta=Meta(actor="user_admin0000"))


def start(data: Path) -> Installation:
    return open_installation(Settings(data=str(data)))


def start_later(data: Path) -> Installation:
    return open_installation(Settings(data=str(data)), lambda: system_clock() + timedelta(hours=1))


def enroll(installation: Installation, token: str) -> str:
    """Exchange a token for the registration of a new key, and return its public part."""
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw().hex()
    proof = key.sign(enrollment_message(token, public)).hex()
    installation.enrollment.trade(token, public, proof)
    return public


def test_takes_a_backup_under_load_and_restores_all_of_it_in_a_new_epoch(tmp_path: Path) -> None:
    data, place, again = tmp_path / "data", tmp_path / "backup", tmp_path / "again"
    token = prepared(data)
    with served(data, token) as server, Load(server) as load:
        load.reach(30)
        before = list(load.acknowledged)
        done = run("backup", str(place), "--data", str(data))
        assert done.returncode == 0, done.stderr
        load.reach(len(before) + 10)  # the server continued

    restored = run("restore", str(place), "--data", str(again))

    assert restored.returncode == 0, restored.stderr
    assert re.search(r"epoch \d+ begins", restored.stdout)
    assert "API tokens, sessions and enrollment tokens have ended" in restored.stdout
    label = read_label(place)
    with opened(again) as installation:
        found = installation.reads.find(epoch_key(), Epoch)
        assert found is not None
        assert found.row.epoch > FIRST
        assert found.row.backup_head == label.head
        (event,) = installation.log.feed(after=found.version - 1, limit=1)
        assert event.type == EpochStarted.__name__
        assert event.position > label.head
        lost = [n for n in before if not installation.reads.find(repository_key(n), Repository)]
        assert lost == []
        assert installation.health.differences() == []
        assert installation.accounts.token(token) is None, "it ended with the epoch"
    with serving(again, is_set_up=False) as seen:
        assert seen.client().get("/version").json()["epoch"] == found.row.epoch


def files_below(place: Path) -> dict[str, os.stat_result]:
    """List the bodies of a backup by their digits."""
    root = place / "blobs" / "sha256"
    return {path.parent.name + path.name: path.stat() for path in root.rglob("*") if path.is_file()}


def test_a_backup_has_exactly_the_bodies_that_its_database_references(tmp_path: Path) -> None:
    """A body that is put during the backup belongs to the next one."""
    data, place = tmp_path / "data", tmp_path / "backup"
    with_content(data)
    with opened(data) as installation:
        unnamed = [installation.blobs.put(b"%d" % number) for number in range(50)]

        def copy_then_draft(path: Path) -> int:
            head = copy(data / "tidegate.db", path)
            draft(data, "v2", b"later")
            return head

        label = back_up(
            installation,
            copy_then_draft,
            lambda path: SqliteStore(str(path), installation.store.schema),
            place,
        )

    found = set(files_below(place))
    assert found.isdisjoint(digest.removeprefix("sha256:") for digest in unnamed)
    assert sha256(b"later").hexdigest() not in found
    assert sha256(BODY).hexdigest() in found
    assert (label.blobs, label.linked, label.missing) == (len(found), 0, [])
    assert {path.name for path in place.iterdir()} == {
        *("backup.json", "blobs", "secret", "tidegate.db"),
    }


def test_a_second_backup_links_the_bodies_of_the_previous_one(tmp_path: Path) -> None:
    data, first, second = tmp_path / "data", tmp_path / "b1", tmp_path / "b2"
    with_content(data)
    taken(data, first)
    draft(data, "v2", b"new")

    done = run("backup", str(second), "--previous", str(first), "--data", str(data))

    assert done.returncode == 0, done.stderr
    assert f"2 of them linked from {first}" in done.stdout
    before, after = files_below(first), files_below(second)
    assert {name for name in before if after[name].st_ino == before[name].st_ino} == set(before)
    assert len(after) == len(before) + 2
    shutil.rmtree(first)
    restore(second, tmp_path / "again", start, system_clock)
    assert read_label(second).blobs == len(after)
    with opened(tmp_path / "again") as installation:
        for body in (BODY, b"new"):
            assert installation.blobs.get(f"sha256:{sha256(body).hexdigest()}") == body


def test_refuses_a_missing_or_foreign_previous_backup(tmp_path: Path) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    with_content(data)
    with_content(other)
    taken(other, tmp_path / "b1")

    with pytest.raises(BlobsForeign):
        taken(data, tmp_path / "b2", tmp_path / "b1")
    with pytest.raises(BackupDamaged, match="holds no backup"):
        taken(data, tmp_path / "b2", tmp_path / "nothing")
    assert not (tmp_path / "b2").exists()


def test_reports_lost_bodies_and_backs_up_the_others(tmp_path: Path) -> None:
    data, place = tmp_path / "data", tmp_path / "backup"
    with_content(data)
    draft(data, "v2", b"kept")
    digits = sha256(BODY).hexdigest()
    (data / "blobs" / "sha256" / digits[:2] / digits[2:]).unlink()

    done = run("backup", str(place), "--data", str(data))

    assert done.returncode == 0, done.stderr
    assert f"a file is missing that the database names: sha256:{digits}" in done.stderr
    assert sha256(b"kept").hexdigest() in files_below(place)
    restore(place, tmp_path / "again", start, system_clock)


def test_restores_bodies_and_increments_the_epoch(tmp_path: Path) -> None:
    data, first, second = tmp_path / "data", tmp_path / "b1", tmp_path / "b2"
    with_content(data)
    taken(data, first)
    earlier = restore(first, tmp_path / "r1", start, system_clock)
    taken(tmp_path / "r1", second)

    restored = restore(second, tmp_path / "r2", start, system_clock)

    assert restored.epoch.epoch > earlier.epoch.epoch > FIRST
    with opened(tmp_path / "r2") as installation:
        bodies = [installation.blobs.get(blob.digest) for blob in installation.blobs.iterate()]
        assert BODY in bodies
        assert installation.health.differences() == []


def test_restoring_one_backup_twice_begins_two_epochs_and_the_later_one_is_higher(
    tmp_path: Path,
) -> None:
    data, place = tmp_path / "data", tmp_path / "backup"
    with_content(data)
    taken(data, place)

    first = restore(place, tmp_path / "r1", start, system_clock)
    second = restore(place, tmp_path / "r2", start_later, system_clock)

    assert second.epoch.epoch > first.epoch.epoch > FIRST


def test_two_restores_within_a_second_begin_two_epochs(tmp_path: Path) -> None:
    data, place = tmp_path / "data", tmp_path / "backup"
    with_content(data)
    taken(data, place)

    found = [restore(place, tmp_path / f"r{n}", start, system_clock).epoch.epoch for n in range(3)]

    assert len(set(found)) == 3
    assert found == sorted(found)


def test_restores_that_run_at_once_begin_epochs_of_their_own(tmp_path: Path) -> None:
    data, place = tmp_path / "data", tmp_path / "backup"
    with_content(data)
    taken(data, place)
    ready = Barrier(3)

    def run(number: int) -> int:
        ready.wait()
        return restore(place, tmp_path / f"r{number}", start, system_clock).epoch.epoch

    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(run, range(3)))

    assert len(set(found)) == 3


def test_refuses_the_second_of_two_restores_into_one_directory(tmp_path: Path) -> None:
    data, place = tmp_path / "data", tmp_path / "backup"
    with_content(data)
    taken(data, place)
    ready = Barrier(2)

    def run(_: int) -> bool:
        ready.wait()
        try:
            restore(place, tmp_path / "restored", start, system_clock)
        except PlaceTaken:
            return False
        return True

    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(run, range(2))) == [False, True]


def test_a_restore_ends_api_tokens_sessions_and_enrollment_tokens(tmp_path: Path) -> None:
    data, place, again = tmp_path / "data", tmp_path / "backup", tmp_path / "again"
    token = prepared(data)
    with opened(data) as installation:
        user = installation.reads.find(user_key(ADMIN), User)
        assert user is not None
        cookie = installation.accounts.open_session(user.row).cookie
        made = installation.enrollment.make_token("t1", "web-1", None, Meta(actor=ADMIN))
        host = installation.enrollment.make_token("t2", "web-2", None, Meta(actor=ADMIN))
        enroll(installation, host.token)
    taken(data, place)

    restored = restore(place, again, start, system_clock)

    assert restored.users == 1
    assert restored.enrollment_tokens == 2, "the used one, too"
    assert restored.hosts == 1
    with opened(again) as installation:
        assert installation.accounts.token(token) is None
        assert installation.accounts.session(cookie) is None
        with pytest.raises(TokenRefused):
            enroll(installation, made.token)
        user = installation.reads.find(user_key(ADMIN), User)
        assert user is not None
        opened_now = installation.accounts.open_session(user.row).cookie
        assert installation.accounts.session(opened_now) is not None, "a new one opens"
        assert installation.health.differences() == []
    with opened(data) as installation:
        assert installation.accounts.token(token) is not None, "only the restored log changes"


def test_a_restore_warns_that_agent_keys_of_the_backup_work_again(tmp_path: Path) -> None:
    data, place, again = tmp_path / "data", tmp_path / "backup", tmp_path / "again"
    prepared(data)
    with opened(data) as installation:
        made = installation.enrollment.make_token("t1", "web-1", None, Meta(actor=ADMIN))
        enroll(installation, made.token)
    taken(data, place)

    done = run("restore", str(place), "--data", str(again))
    looked = run("doctor", "--data", str(again))

    assert done.returncode == 0, done.stderr
    assert "1 host keeps the key of the backup" in done.stdout
    assert "tidegate host revoke" in done.stdout
    assert "tidegate host revoke" in looked.stdout


def test_a_restore_revokes_the_keys_of_agents_on_request(tmp_path: Path) -> None:
    data, place, again = tmp_path / "data", tmp_path / "backup", tmp_path / "again"
    prepared(data)
    with opened(data) as installation:
        made = installation.enrollment.make_token("t1", "web-1", None, Meta(actor=ADMIN))
        public_key = enroll(installation, made.token)
        installation.enrollment.demand_valid("web-1", public_key)
    taken(data, place)

    done = run("restore", str(place), "--data", str(again), "--revoke-keys")

    assert done.returncode == 0, done.stderr
    assert "1 host is revoked; make a token for each: tidegate host enroll HOST" in done.stdout
    assert "keeps the key" not in done.stdout
    with opened(again) as installation:
        with pytest.raises(KeyRevoked):
            installation.enrollment.demand_valid("web-1", public_key)
        token = installation.enrollment.make_token("t2", "web-1", None, Meta(actor=ADMIN))
        other = enroll(installation, token.token)
        installation.enrollment.demand_valid("web-1", other)
        assert installation.health.differences() == []


# ── a database restored with its own tools ────────────────────────────────────────────────────────


@pytest.fixture(params=["sqlite", "postgres", "dynamodb"])
def store(request: pytest.FixtureRequest) -> str:
    """The URL of a fresh log; empty: SQLite in the data directory."""
    name = f"restored_{uuid4().hex[:12]}"
    match request.param:
        case "sqlite":
            return ""
        case "postgres":
            return f"{request.getfixturevalue('postgres_url')}&schema={name}"
        case _:
            endpoint = request.getfixturevalue("dynamodb_url")
            return f"dynamodb://{name}?region=local&endpoint={endpoint}"


def test_a_restored_database_begins_an_epoch_in_place_and_ends_credentials(
    tmp_path: Path, store: str
) -> None:
    data = tmp_path / "data"
    words = ("restore", "--in-place", "--revoke-keys", "--data", str(data), "--store", store)
    token = prepared(data, store)
    with opened(data, store) as installation:
        user = installation.reads.find(user_key(ADMIN), User)
        assert user is not None
        cookie = installation.accounts.open_session(user.row).cookie
        made = installation.enrollment.make_token("t1", "web-1", None, Meta(actor=ADMIN))
        host = installation.enrollment.make_token("t2", "web-2", None, Meta(actor=ADMIN))
        public_key = enroll(installation, host.token)
        head = installation.log.head()

        busy = run(*words)

    assert busy.returncode == 6
    assert "another process has the log open" in busy.stderr

    done = run(*words)

    assert done.returncode == 0, done.stderr
    assert f"restored up to position {head}, of " in done.stdout
    assert "1 host is revoked" in done.stdout
    with opened(data, store) as installation:
        found = installation.reads.find(epoch_key(), Epoch)
        assert found is not None
        assert (found.row.epoch > FIRST, found.row.backup_head) == (True, head)
        assert installation.accounts.token(token) is None
        assert installation.accounts.session(cookie) is None
        with pytest.raises(TokenRefused):
            enroll(installation, made.token)
        with pytest.raises(KeyRevoked):
            installation.enrollment.demand_valid("web-2", public_key)
        assert installation.health.differences() == []


def test_an_empty_log_was_not_restored(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with opened(data):
        pass

    ran = run("restore", "--in-place", "--data", str(data))
    nowhere = run("restore", "--in-place", "--data", str(tmp_path / "nowhere"))

    assert (ran.returncode, nowhere.returncode) == (1, 4)
    assert "the log is empty; restore the database first" in ran.stderr


@pytest.mark.parametrize("words", [(), ("backup", "--in-place")])
def test_restores_a_directory_or_in_place(tmp_path: Path, words: tuple[str, ...]) -> None:
    ran = run("restore", *words, "--data", str(tmp_path / "data"))

    assert ran.returncode == 2
    assert "name the directory of the backup, or use --in-place; not both" in ran.stderr
    assert not (tmp_path / "data").exists()


def test_restores_only_into_an_empty_directory(tmp_path: Path) -> None:
    data, place = tmp_path / "data", tmp_path / "backup"
    with_content(data)
    taken(data, place)

    with pytest.raises(PlaceTaken):
        taken(data, place)
    with pytest.raises(PlaceTaken):
        restore(place, data, start, system_clock)
    ran = run("restore", str(place), "--data", str(data))
    assert ran.returncode == 1
    assert "not empty" in ran.stderr


@pytest.mark.parametrize("name", ["tidegate.db", "secret", "blob", "backup.json"])
def test_refuses_a_backup_with_a_wrong_byte(tmp_path: Path, name: str) -> None:
    data, place, again = tmp_path / "data", tmp_path / "backup", tmp_path / "again"
    with_content(data)
    taken(data, place)
    path = next((place / "blobs" / "sha256").rglob("*/*")) if name == "blob" else place / name
    if name == "backup.json" or name == "blob":
        path.unlink()
    else:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)

    with pytest.raises(BackupDamaged):
        restore(place, again, start, system_clock)

    assert not again.exists(), "it appears as a whole or not at all"


def test_reports_that_other_engines_have_backups_of_their_own(tmp_path: Path) -> None:
    url = f"postgresql://nobody@127.0.0.1:{free_port()}/none"

    ran = run("backup", str(tmp_path / "b"), "--data", str(tmp_path / "d"), "--store", url)

    assert ran.returncode == 2
    assert "pg_dump" in ran.stderr
