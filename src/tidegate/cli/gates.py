"""Why something waits: gates as lines, what blocks first, and on what ground."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.cli import live_view, output, symbols

SHOWN_MAX = 50


def explain_lines(found: Any) -> list[live_view.Line]:
    """An explanation: the answer, then every gate; of several, one below the other."""
    several = found if isinstance(found, list) else found.get("items")
    if several is not None:
        return [line for one in several[:SHOWN_MAX] for line in explain_lines(one)]
    lines: list[live_view.Line] = []
    about = found.get("host_id") or found.get("rollout_id")
    if about:
        lines.append(_about(found, symbols.clean(about)))
    if found.get("answer"):
        lines.append([(symbols.clean(found["answer"]), "default")])
    lines += [line for wait in found.get("waits") or [] for line in _wait_lines(wait)]
    lines += verdict_lines(found.get("verdicts") or [])
    return lines or [[("nothing holds it back", "green")]]


def _wait_lines(wait: Any) -> list[live_view.Line]:
    """What it waits for, since when, until when; below it each command that ends it."""
    line: live_view.Line = [(f"- {symbols.clean(wait['sentence'])}", "default")]
    times = [
        f"{word} {symbols.moment(wait[word])}" for word in ("since", "until") if wait.get(word)
    ]
    if times:
        line.append((f"  ({', '.join(times)})", "bright_black"))
    return [
        line,
        *([(f"    next: {symbols.clean(verb)}", "default")] for verb in wait.get("verbs") or []),
    ]


def _about(found: Any, name: str) -> live_view.Line:
    line: live_view.Line = [(name, "default")]
    state = found.get("host_state")
    if state:
        mark, colour = symbols.glyph(str(state))
        line.append((f"  {mark} {symbols.clean(symbols.state_word(str(state)))}", colour))
    if found.get("wave") is not None:
        line.append((f"  wave {found['wave'] + 1}", "default"))
    for word in ("waiting", "ready", "unstaged"):
        if found.get(word):
            line.append((f"  {found[word]} {word}", "default"))
    return line


def verdict_lines(verdicts: Sequence[Any]) -> list[live_view.Line]:
    """Gates in the order in which they are asked, those that block with their reason."""
    width = max((len(str(verdict["gate"])) for verdict in verdicts), default=0)
    return [_line(verdict, width) for verdict in verdicts]


def _line(verdict: Any, width: int) -> live_view.Line:
    word = "open" if verdict.get("passed") else "blocked"
    mark, colour = symbols.glyph(word)
    line: live_view.Line = [
        (f"{mark} {symbols.clean(verdict['gate']):<{width}}  {word:<7}", colour)
    ]
    reason = symbols.clean(output.dig(verdict, "reason") or "")
    if reason:
        line.append((f"  {reason}", "default"))
    if verdict.get("hosts"):
        line.append((f"  ({output.counted(verdict['hosts'], 'host')})", "default"))
    evidence = verdict.get("evidence")
    if evidence is not None:
        row = f"{evidence['collection']}/{evidence['id']}"
        line.append((f"  [{symbols.clean(row)} at {evidence['position']}]", "bright_black"))
    return line
