"""Build the C files of this package with the system's compiler, once per content."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidegate-bench"
HERE = Path(__file__).parent


class NoCompiler(RuntimeError):
    """There is no C compiler, so this part cannot run: a failure, not a skip."""


def library(name: str) -> Path:
    """Build the shared object of `name`.c.

    Raises:
        NoCompiler: put cc on PATH.
    """
    source = HERE / f"{name}.c"
    digest = sha256(source.read_bytes()).hexdigest()[:12]
    made = CACHE / f"{name}-{os.getuid()}-{digest}.so"
    if made.exists():
        return made
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NoCompiler("put a C compiler (cc) on PATH")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as home:
        draft = Path(home) / made.name
        subprocess.run(
            [compiler, "-O2", "-shared", "-fPIC", "-w", "-o", draft, source, "-ldl", "-lpthread"],
            check=True,
        )
        draft.rename(made)
    return made
