"""`python -m bench speed`: each subject is a module here with a `main(arguments)`."""

from __future__ import annotations

import sys
from importlib import import_module

# Imported on demand, so that a trial starts quickly.
SUBJECTS = {
    "abuse": "bench.abuse.command",
    "approvals": "bench.approvals.command",
    "attack": "bench.attack.command",
    "bugs": "bench.bugs",
    "content": "bench.content",
    "faults": "bench.faults.command",
    "fleet": "bench.fleet.command",
    "histories": "bench.histories.command",
    "http": "bench.http.command",
    "notify": "bench.notify",
    "pages": "bench.pages.command",
    "registry": "bench.registry.command",
    "simulate": "bench.simulate",
    "speed": "bench.speed.command",
    "walks": "bench.walks",
    "windows": "bench.windows",
}


def main() -> int:
    subject = SUBJECTS.get(sys.argv[1]) if len(sys.argv) > 1 else None
    if subject is None:
        print(f"usage: python -m bench {{{'|'.join(SUBJECTS)}}} …", file=sys.stderr)
        return 2
    code: int = import_module(subject).main(sys.argv[2:])
    return code


if __name__ == "__main__":
    sys.exit(main())
