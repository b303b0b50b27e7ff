"""Run the commands of a page in a shell, in an empty directory, as real processes.

Commands that keep running (``tidegate serve``, ``worker``) run in the background, as a reader would
run them in another terminal. A line that ends with ``# exit code 7`` must end with that code. Ports
on the pages are replaced by free ones.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.docs.blocks import Block, commands_of
from tests.docs.preconditions import STAGES
from tests.servers.process import free_port

PORT: Final = "8420"
RECEIVER_PORT: Final = "8421"  # of a receiver that a page starts
SECONDS_MAX: Final = 240
GOES_ON: Final = re.compile(r"^tidegate (serve|worker)\b(?!.*(--print-config|--help))")
ENDS_WITH: Final = re.compile(r"^(\S.*?) +# exit code (\d+)$")
PROLOGUE: Final = """
set -euo pipefail
beside=()
place=start
trap 'echo "in the block at $place" >&2' ERR
listening() {
  for _ in $(seq 600); do
    if (exec 3<>/dev/tcp/127.0.0.1/$TIDEGATE_PORT) 2>/dev/null; then return; fi
    sleep 0.1
  done
  echo "no server came up" >&2
  cat goes-on.log >&2
  return 1
}
"""
JOINED: Final = """
for process in ${beside[@]+"${beside[@]}"}; do wait "$process"; done
beside=()
"""
EPILOGUE: Final = 'echo "the page is done"\n'


def script_of(blocks: Sequence[Block]) -> str:
    """All blocks of a page as one script."""
    parts = [PROLOGUE, STAGES.get(blocks[0].page, "")]
    for block in blocks:
        parts.append(f"place={block.place}\n")
        text = commands_of(block)
        if block.beside:
            log = f"beside-{block.line}.log"
            parts.append(
                f"(\n{text}) > {log} 2>&1 || {{ cat {log} >&2; exit 1; }} &\nbeside+=($!)\n"
            )
        else:
            parts += [*(_line(line) for line in text.splitlines()), JOINED]
    return "".join([*parts, JOINED, EPILOGUE])


def _line(line: str) -> str:
    if ends := ENDS_WITH.match(line):
        return f"code=0; {ends[1]} || code=$?; test $code -eq {ends[2]}\n"
    found = GOES_ON.match(line)
    if found is None:
        return line + "\n"
    command = line.partition(" #")[0].rstrip().removesuffix("&")
    awaited = "listening\n" if found[1] == "serve" else ""
    return f"{command} >> goes-on.log 2>&1 &\n{awaited}"


def environment_of(directory: Path, port: str) -> dict[str, str]:
    """The environment of a reader who has the program on the path and an empty home directory."""
    programs = Path(sys.executable).parent
    return {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(directory / "home"),
        "XDG_CONFIG_HOME": str(directory / "home" / "config"),
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
        "TIDEGATE_PORT": port,
        "TIDEGATE_URL": f"http://127.0.0.1:{port}",
    }


def run_page(blocks: Sequence[Block], directory: Path) -> str:
    """Run the blocks; return the output. Raises: AssertionError: a block failed, or never ended."""
    port = str(free_port())
    (directory / "home").mkdir()
    work = directory / "work"
    work.mkdir()
    script = directory / "page.sh"
    text = re.sub(rf"\b{RECEIVER_PORT}\b", str(free_port()), script_of(blocks))
    script.write_text(re.sub(rf"\b{PORT}\b", port, text))
    said = directory / "said.log"
    with said.open("wb") as output:
        shell = subprocess.Popen(
            ["bash", str(script)],
            cwd=work,
            env=environment_of(directory, port),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | None = shell.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(shell)
    told = said.read_text(errors="replace")
    assert code == 0, f"{'it did not end' if code is None else f'exit code {code}'}:\n{told}"
    return told


def _end(shell: subprocess.Popen[bytes]) -> None:
    """End the page's session: the servers and agents that its blocks have started."""
    try:
        os.killpg(shell.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    shell.wait(SECONDS_MAX)
