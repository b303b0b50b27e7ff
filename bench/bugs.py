"""Plant one bug at a time in a copy of the source, and check that the bench finds it.

A bug replaces a few words of a module. The trial that should find it runs on the copy, in processes
that import the copy instead of the source. A bug whose words no longer exist in the source counts
as not found, and must be written again. Bugs that are not found are listed in ``SURVIVORS``, each
with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench.tables import table
from bench.trials import MEMORY, ROOT

SOURCE = ROOT / "src" / "tidegate"
TRIAL_SECONDS_MAX = 400.0
ENGINES = "engines/"
SQLITE = f"{ENGINES}sqlite/"
POSTGRES = f"{ENGINES}postgres/"
DYNAMODB = f"{ENGINES}dynamodb/"

Edit = tuple[str, str, str]  # module, the words in it, and the replacement


@dataclass(frozen=True)
class PlantedBug:
    """A bug, and the trial that should find it: subject, part, mode, number."""

    name: str
    trial: tuple[str, str, str, int]
    edits: tuple[Edit, ...]


class NotPlanted(Exception):
    """The words that a bug replaces do not occur, or occur more than once."""


def _bug(name: str, trial: str, *edits: Edit) -> PlantedBug:
    subject, part, mode, number = trial.split()
    return PlantedBug(name, (subject, part, mode, int(number)), edits)


# Of the commits after the start, every second one stays open until the next one begins.
# Of the commits after the start, every second one stays open until the next one begins.
_DEFERRED = (
    (
        f"{SQLITE}store.py",
        "                self._roll_back()  # a signal handler interrupted the commit",
        '                self._writer.execute("COMMIT")  #',
    ),
    (
        f"{SQLITE}store.py",
        '            self._writer.execute("COMMIT")\n',
        '            before > 30 and before % 2 or self._writer.execute("COMMIT")\n',
    ),
)

BUGS: tuple[PlantedBug, ...] = (
    # ── power ──
    _bug(
        "synchronous is NORMAL",
        "faults power ci 0",
        (f"{SQLITE}connection.py", '"synchronous = FULL"', '"synchronous = NORMAL"'),
        (f"{SQLITE}connection.py", '"synchronous": 2', '"synchronous": 1'),
    ),
    _bug(
        "synchronous is OFF",
        "faults power ci 0",
        (f"{SQLITE}connection.py", '"synchronous = FULL"', '"synchronous = OFF"'),
        (f"{SQLITE}connection.py", '"synchronous": 2', '"synchronous": 0'),
    ),
    _bug(
        "the secret is not synced",
        "faults power ci 5",
        (
            "control/secrets.py",
            "        os.fsync(draft.fileno())\n",
            "",
        ),
    ),
    _bug(
        "a blob's bytes are not synced",
        "faults power ci 0",
        (
            "control/storage/blobs/files.py",
            "        self._renew(path)\n        self._sync(file.fileno())\n",
            "        self._renew(path)\n",
        ),
    ),
    _bug(
        "a blob's name is not synced",
        "faults power ci 0",
        (
            "control/storage/blobs/files.py",
            "        draft.rename(path)\n        self._sync_directory(path.parent)\n",
            "        draft.rename(path)\n",
        ),
    ),
    _bug(
        "room in the WAL is made over its last frame",
        "faults power ci 0",
        (
            f"{SQLITE}connection.py",
            "            return wal.write(bytes(step))\n",
            (
                "            wal.seek(-min(size, 4_200), os.SEEK_END)\n"
                "            return wal.write(bytes(step))\n"
            ),
        ),
    ),
    _bug(
        "a commit is made durable with the next one",
        "faults power ci 0",
        *_DEFERRED,
    ),
    _bug(
        "a WAL that is found at a start is thrown away",
        "faults power ci 0",
        (
            f"{SQLITE}connection.py",
            "    try:\n        connection = _open(path)\n",
            (
                "    try:\n"
                "        if os.path.exists(f'{path}-wal'):\n"
                "            os.truncate(f'{path}-wal', 0)\n"
                "        connection = _open(path)\n"
            ),
        ),
    ),
    # ── kills ──
    _bug(
        "a commit is made with the next one",
        "faults kills smoke 0",
        *_DEFERRED,
    ),
    _bug(
        "idempotency keys are not written",
        "faults kills ci 0",
        (f"{SQLITE}batch.py", "        if self._remembered:\n", "        if False:\n"),
    ),
    _bug(
        "a repeated key is looked up in memory only",
        "faults kills ci 0",
        (
            f"{SQLITE}batch.py",
            "        if keys:\n            for key, *columns",
            "        if False:\n            for key, *columns",
        ),
        (
            f"{SQLITE}batch.py",
            '"INSERT INTO idempotency_keys',
            '"INSERT OR REPLACE INTO idempotency_keys',
        ),
        (
            f"{SQLITE}store.py",
            "            row = cursor.execute(sqlite_batch.RECEIPT, (key,)).fetchone()\n",
            "            row = None\n",
        ),
    ),
    # ── io ──
    _bug(
        "a failed blob write is a 500",
        "faults io smoke 0",
        (
            "control/storage/blobs/files.py",
            "except OSError as error:\n            if error.errno",
            "except EOFError as error:\n            if error.errno",
        ),
    ),
    _bug(
        "a failed flush is acknowledged",
        "faults io ci 7",
        (
            f"{SQLITE}store.py",
            "        if failure is not None:\n            # A conflict",
            "        if False:\n            # A conflict",
        ),
    ),
    _bug(
        "a failed write is not rolled back",
        "faults io ci 4",
        (
            f"{SQLITE}store.py",
            "        self._roll_back()\n        if isinstance(failure, apsw.IOError):\n",
            "        if isinstance(failure, apsw.BusyError):\n",
        ),
    ),
    _bug(
        "an unavailable store is a 500",
        "faults io smoke 4",
        ("web/problems.py", "    errors.Unavailable: 503,", "    errors.Unavailable: 500,"),
    ),
    _bug(
        "a failed flush is said to be nothing",
        "faults io ci 4",
        (
            f"{SQLITE}store.py",
            "        if head == before:\n            return errors.StoreUnavailable",
            "        if head != before:\n            return errors.StoreUnavailable",
        ),
    ),
    # ── PostgreSQL ──
    _bug(
        "a lost answer is a failure",
        "faults postgres ci 2",
        (
            f"{POSTGRES}writer.py",
            "        if is_committed:\n            return answers\n",
            (
                "        if is_committed:\n"
                "            return [StoreUnavailable('lost') for _ in answers]\n"
            ),
        ),
    ),
    _bug(
        "a commit is sent again after its COMMIT was lost",
        "faults postgres ci 2",
        (
            f"{POSTGRES}writer.py",
            "            if mark is None or not failures.is_lost(error):\n",
            "            if True:\n",
        ),
    ),
    _bug(
        "a lost COMMIT is taken for done",
        "faults postgres ci 2",
        (
            f"{POSTGRES}writer.py",
            "        is_committed = self._is_committed(head, mark)\n",
            "        is_committed = True\n",
        ),
    ),
    _bug(
        "PostgreSQL acknowledges before it flushes",
        "faults postgres ci 0",
        (
            f"{POSTGRES}writer.py",
            "            *(_BEGIN, self._take_lock),\n",
            (
                "            _BEGIN,\n"
                "            sessions.Statement(b'SET LOCAL synchronous_commit = off'),\n"
                "            self._take_lock,\n"
            ),
        ),
        (
            f"{POSTGRES}writer.py",
            "        _, _, head, *found = map",
            "        _, _, _, head, *found = map",
        ),
    ),
    _bug(
        "nobody takes the lock",
        "histories postgres ci 0",
        (
            f"{POSTGRES}writer.py",
            "            *(_BEGIN, self._take_lock),\n",
            '            *(_BEGIN, sessions.Statement(b"SELECT 1")),\n',
        ),
    ),
    _bug(
        "the writer forgets what others did",
        "histories postgres ci 0",
        (
            f"{POSTGRES}writer.py",
            "            tail.add(facts, head)\n",
            "            tail.head = head\n",
        ),
    ),
    _bug(
        "the tail of the log forgets without a word",
        "histories postgres ci 3",
        (f"{POSTGRES}log_tail.py", "            self.floor = self._newer_from\n", ""),
    ),
    # ── DynamoDB ──
    _bug(
        "a lost answer is nothing",
        "faults dynamodb ci 0",
        (
            f"{DYNAMODB}commit.py",
            (
                "            return self._resolve_outcome(drafts, waits)\n"
                "        except dynamodb_transport.Cancelled"
            ),
            (
                "            self._answer_all(drafts, errors.StoreUnavailable('lost'))\n"
                "            self._number = None\n"
                "            return []\n        except dynamodb_transport.Cancelled"
            ),
        ),
    ),
    _bug(
        "a throttled transaction is taken for done",
        "faults dynamodb ci 0",
        (
            f"{DYNAMODB}commit.py",
            (
                "            return [(drafts, waits + 1)]\n"
                "        except dynamodb_transport.AnswerLost"
            ),
            (
                "            self._answer_applied(tx)\n"
                "            return []\n        except dynamodb_transport.AnswerLost"
            ),
        ),
    ),
    _bug(
        "a contended commit is taken for done",
        "faults dynamodb ci 0",
        (
            f"{DYNAMODB}commit.py",
            "            return self._sort_out_refusal(drafts, waits, steps, refusal.reasons)\n",
            (
                "            if refusal.reasons[0].code == 'TransactionConflict':\n"
                "                self._answer_applied(tx)\n"
                "                return []\n"
                "            return self._sort_out_refusal(drafts, waits, steps, refusal.reasons)\n"
            ),
        ),
    ),
    # ── histories on SQLite ──
    _bug(
        "a handle forgets that others write",
        "histories sqlite ci 0",
        (f"{SQLITE}own_writes.py", "        if head != self._left_at or len", "        if len"),
    ),
    _bug(
        "a read claims one position more",
        "histories sqlite ci 0",
        (f"{SQLITE}store.py", "Boundary(query, head, None", "Boundary(query, head + 1, None"),
    ),
    _bug(
        "a stale row is written over",
        "histories sqlite ci 2",
        (f"{SQLITE}batch.py", "            if found != write.expect:", "            if found < 0:"),
    ),
    _bug(
        "a receipt names its first position as its last",
        "histories sqlite ci 0",
        (
            f"{SQLITE}batch.py",
            "            return model.Receipt(first, self.head, commit.at)\n",
            "            return model.Receipt(first, first, commit.at)\n",
        ),
    ),
    _bug(
        "the boundary is looked up one position late",
        "histories sqlite ci 0",
        (f"{SQLITE}batch.py", "AND seq > ? LIMIT 1", "AND seq > ? + 1 LIMIT 1"),
    ),
    _bug(
        "a repeat is done again",
        "histories sqlite ci 0",
        (
            f"{SQLITE}batch.py",
            "        if once is not None and (seen := self._receipts.get(once.key)) is not None:",
            "        if once is None and (seen := self._receipts.get('')) is not None:",
        ),
        (
            f"{SQLITE}batch.py",
            '"INSERT INTO idempotency_keys',
            '"INSERT OR REPLACE INTO idempotency_keys',
        ),
    ),
    _bug(
        "conflicts are not checked",
        "histories sqlite ci 0",
        (
            f"{SQLITE}batch.py",
            "        return self._moved(draft) or self._outdated(draft) or self._accept(draft)\n",
            "        return self._outdated(draft) or self._accept(draft)\n",
        ),
    ),
    _bug(
        "a group does not see its own facts",
        "histories sqlite ci 2",
        (f"{SQLITE}batch.py", "                note(name, type, seq)\n", ""),
    ),
    _bug(
        "a conflict is called by a position that nobody has",
        "histories sqlite ci 0",
        (
            f"{SQLITE}batch.py",
            "BoundaryMoved(clause, newest)",
            "BoundaryMoved(clause, 0)",
        ),
    ),
    # ── approvals ──
    _bug(
        "verbs on one package do not wait for each other",
        "approvals sqlite full 0",
        (
            "control/operations/revisions.py",
            "                package_lane(place.package),\n",
            "                place.name,\n",
        ),
    ),
    # ── attacks ──
    _bug(
        "a head may be endless",
        "attack load smoke 0",
        ("web/connections.py", "HEAD_BYTES_MAX = 64 * 1024", "HEAD_BYTES_MAX = 1 << 40"),
        ("web/connections.py", "HEAD_SECONDS_MAX = 10.0", "HEAD_SECONDS_MAX = 1_000.0"),
    ),
    _bug(
        "a principal has no rate",
        "attack rates ci 0",
        ("web/authentication.py", "Bucket(what, rate, 2 * rate)", "Bucket(what, 1e9, 2 * 10**9)"),
    ),
    _bug(
        "passwords of one name can be guessed",
        "attack rates ci 0",
        (
            "rate_limits.py",
            "            allowed = left >= cost - ROUNDING\n",
            "            allowed = True\n",
        ),
    ),
    _bug(
        "a role is good on every scope",
        "attack permissions ci 0",
        ("web/authentication.py", "    if permission.scope is not None:\n", "    if False:\n"),
    ),
    _bug(
        "a route is open to every role",
        "attack permissions ci 0",
        (
            "domain/access/principals.py",
            "    if not any(principal.may(verb, scope) for verb in verbs):\n",
            "    if not principal.id:\n",
        ),
    ),
    _bug(
        "a token outlives the one that made it",
        "attack permissions ci 0",
        (
            "control/operations/api_tokens.py",
            "item is not None and item.row.revoked_at is None for",
            "item is not None for",
        ),
    ),
    _bug(
        "an address inside an address is not looked at",
        "attack ssrf ci 0",
        (
            "public_addresses.py",
            "    return all(map(_is_public, (address, *_inside(address))))\n",
            "    return _is_public(address)\n",
        ),
    ),
    _bug(
        "only the first address of a name is checked",
        "attack ssrf ci 0",
        (
            "public_addresses.py",
            "    for text in texts:\n",
            "    for text in texts[:1]:\n",
        ),
    ),
    _bug(
        "addresses of clouds are public",
        "attack ssrf ci 0",
        (
            "public_addresses.py",
            "    closed = any(address in network for network in _CLOSED)\n",
            "    closed = False\n",
        ),
    ),
    _bug(
        "templates do not escape",
        "attack xss smoke 0",
        ("dashboard/html.py", "autoescape=True", "autoescape=False"),
    ),
    _bug(
        "tokens are kept as they are",
        "attack secrets ci 0",
        (
            "control/secrets.py",
            "    return sha256(secret.encode()).hexdigest()\n",
            "    return secret\n",
        ),
    ),
    _bug(
        "a response to an agent has no end",
        "attack agent smoke 0",
        ("bounded_http.py", "        if size > bytes_max:\n", "        if False:\n"),
    ),
    _bug(
        "what is invalid is a 500",
        "attack raw smoke 0",
        ("web/problems.py", "    errors.Invalid: 400,", "    errors.Invalid: 500,"),
    ),
)

# Planted bugs that no trial finds, and the reason.
SURVIVORS: dict[str, str] = {
    "a failed write is not rolled back": (
        "SQLite rolls back by itself after a failed write, so the next transaction begins"
    ),
}


def plant(bug: PlantedBug, home: Path) -> None:
    """Copy the source below ``home``, with the bug in it. Raises: NotPlanted."""
    copy = home / "tidegate"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for module, old, new in bug.edits:
        path = copy / module
        text = path.read_text()
        if text.count(old) != 1:
            raise NotPlanted(f"{module} has {old.strip()!r} {text.count(old)} times")
        path.write_text(text.replace(old, new))


def hunt(bug: PlantedBug) -> str:
    """What the trial reports about the bug; empty if it found nothing."""
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="tidegate-bug-", dir=memory) as name:
        home = Path(name)
        home.chmod(0o755)
        plant(bug, home)
        subject, part, mode, number = bug.trial
        words = [subject, part, "--mode", mode, "--seed", "1", "--trial", str(number)]
        process = subprocess.Popen(
            [sys.executable, "-m", "bench", *words, "--result", str(home / "result")],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": name, "TMPDIR": name, "TIDEGATE_BENCH_BUG": bug.name},
        )
        try:
            _, said = process.communicate(timeout=TRIAL_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return "the trial has no end"
        if not (home / "result").exists():
            return f"the trial ends: {said.strip().rpartition(chr(10))[2]}"[:200]
        failures: list[str] = json.loads((home / "result").read_text())["failures"]
        return failures[0][:200] if failures else ""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench bugs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="*", metavar="name", help="run only bugs whose name contains this"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args(arguments)
    chosen = [
        bug for bug in BUGS if not asked.names or any(name in bug.name for name in asked.names)
    ]
    rows, lost = [], 0

    def tried(bug: PlantedBug) -> str:
        try:
            return hunt(bug)
        except NotPlanted as error:
            return f"NOT PLANTED {error}"

    with ThreadPoolExecutor(asked.jobs) as pool:
        for bug, said in zip(chosen, pool.map(tried, chosen), strict=True):
            is_found = bool(said) and not said.startswith("NOT PLANTED")
            lost += not is_found and bug.name not in SURVIVORS
            verdict = "found" if is_found else SURVIVORS.get(bug.name, "NOT FOUND")
            print(f"{verdict}: {bug.name}: {said}", flush=True)
            rows.append([bug.name, " ".join(map(str, bug.trial)), verdict])
    print(table(["bug", "trial", "verdict"], rows))
    print(f"{len(chosen)} bugs, {lost} neither found nor explained")
    return 1 if lost else 0
