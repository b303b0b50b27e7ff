"""`python -m bench speed`: each subject is a package here with a `main(arguments)`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from bench import simulate
from bench.abuse import command as abuse
from bench.fleet import command as fleet
from bench.http import command as http
from bench.pages import command as pages
from bench.registry import command as registry
from bench.speed import command as speed

SUBJECTS: dict[str, Callable[[Sequence[str]], int]] = {
    "abuse": abuse.main,
    "fleet": fleet.main,
    "http": http.main,
    "pages": pages.main,
    "registry": registry.main,
    "simulate": simulate.main,
    "speed": speed.main,
}


def main() -> int:
    subject = SUBJECTS.get(sys.argv[1]) if len(sys.argv) > 1 else None
    if subject is None:
        print(f"usage: python -m bench {{{'|'.join(SUBJECTS)}}} …", file=sys.stderr)
        return 2
    return subject(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
