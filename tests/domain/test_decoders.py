"""Decoders are built under one lock at startup; a decoding thread builds none.

What msgspec does otherwise is shown in a child process, because it crashes the process.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta, Struct

from tidegate import decoders
from tidegate.errors import InvalidDefinition

ROUNDS = 400
THREADS = 16
SECONDS_MAX = 300.0

# Each round builds a Struct of Structs that no decoder knows, and passes it to threads that start
# together. The short switch interval packs hours of ordinary service into one round.
RACE = """
import resource, sys, threading
import msgspec
from tidegate import decoders

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sys.setswitchinterval(1e-6)
rounds, threads, how = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

def decode(struct, data):
    if how == "msgspec":
        return msgspec.json.decode(data, type=struct)
    return decoders.build(struct).decode(data)

def race(number):
    parts = [msgspec.defstruct(f"Part{number}x{n}", [("size", int, 0)]) for n in range(20)]
    members = [(f"m{n}", part | None, None) for n, part in enumerate(parts)]
    whole = msgspec.defstruct(f"Whole{number}", members)
    barrier = threading.Barrier(threads)
    sizes = []
    def run():
        barrier.wait()
        sizes.append(decode(whole, b'{"m0":{"size":1},"m19":{"size":2}}').m19.size)
    started = [threading.Thread(target=run) for _ in range(threads)]
    for thread in started: thread.start()
    for thread in started: thread.join()
    assert sizes == [2] * threads, sizes

for number in range(rounds):
    race(number)
"""


def raced(how: str, rounds: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", RACE, str(rounds), str(THREADS), how],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def test_msgspec_kills_a_process_whose_threads_build_one_struct_at_once() -> None:
    """This is why the module exists. When this test fails, msgspec is fixed, and the module may
    shrink.
    """
    ended = raced("msgspec", ROUNDS)

    assert ended.returncode < 0, "msgspec no longer fails here: see src/tidegate/decoders.py"


def test_lets_threads_that_start_together_build_one_decoder() -> None:
    ended = raced("decoders", ROUNDS // 4)

    assert ended.returncode == 0, ended.stderr[-2_000:]


# ── what may be decoded ───────────────────────────────────────────────────────────────────────────


class Crate(Struct, frozen=True):
    weight: Annotated[int, Meta(ge=0)]
    kind: Literal["box", "barrel"] = "box"


class Cargo(Struct, frozen=True):
    crates: tuple[Crate, ...] = ()
    notes: dict[str, list[str]] | None = None


class Unbuilt(Struct, frozen=True):
    name: str


def test_refuses_a_type_for_which_no_decoder_was_built() -> None:
    with pytest.raises(InvalidDefinition, match="Unbuilt"):
        decoders.decoder(Unbuilt)
    with pytest.raises(InvalidDefinition, match="Unbuilt"):
        decoders.convert({"name": "a"}, Unbuilt)
    with pytest.raises(InvalidDefinition, match="Unbuilt"):
        decoders.convert([], list[Unbuilt])
    assert Unbuilt not in decoders.built()


def test_builds_each_decoder_once() -> None:
    assert decoders.build(Cargo) is decoders.build(Cargo) is decoders.decoder(Cargo)


@pytest.mark.parametrize(
    ("hint", "content", "found"),
    [
        (Cargo, {"crates": [{"weight": 1}]}, Cargo((Crate(1),))),
        (tuple[Crate, ...], [{"weight": 2}], (Crate(2),)),
        (Crate, {"weight": 3, "kind": "barrel"}, Crate(3, "barrel")),
        (Annotated[int, Meta(ge=0)], 4, 4),
        (dict[str, list[str]] | None, {"a": ["b"]}, {"a": ["b"]}),
        (list[str], ["c"], ["c"]),
    ],
)
def test_converts_every_part_of_a_type_that_was_built(hint: Any, content: Any, found: Any) -> None:
    decoders.build(Cargo)

    assert decoders.convert(content, hint) == found


def test_converts_text_on_request() -> None:
    decoders.build(Cargo)

    assert decoders.convert("5", Annotated[int, Meta(ge=0)], strict=False) == 5
    with pytest.raises(msgspec.ValidationError):
        decoders.convert("5", Annotated[int, Meta(ge=0)])


def test_refuses_a_type_that_has_no_decoder_at_all() -> None:
    with pytest.raises(InvalidDefinition, match="cannot be decoded"):
        decoders.build(Crate | Cargo)
