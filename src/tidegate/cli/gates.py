"""Print an explanation why something waits: its gates, with the blocking ones first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.cli import live_view, output, symbols

SHOWN_MAX = 50


def explain_lines(found: Any) -> list[live_view.Line]:
    """The lines of an explanation: the answer, then every gate."""
    several = found if isinstance(found, list) else found.get("items")
    if several is not None:
        return [line for one in several[:SHOWN_MAX] for line in explain_lines(one)]
    lines: list[live_view.Line] = []
    about = found.get("host_id") or found.get("rollout_id")
    if about:
        lines.append(_about(found, symbols.clean(about)))
    waits = found.get("waits") or []
    sentences = [str(wait["sentence"]) for wait in waits]
    answer = _leave_out(str(found.get("answer") or ""), sentences)
    if answer:
        lines.append([(symbols.clean(answer), "default")])
    shown: set[str] = set()
    lines += [line for wait in waits for line in _wait_lines(wait, shown)]
    if found.get("protection") and any(wait.get("remedies") or wait.get("ask") for wait in waits):
        lines.append([(symbols.clean(found["protection"]), "default")])
    lines += verdict_lines(found.get("verdicts") or [], sentences)
    return lines or [[("nothing holds it back", "green")]]


def _leave_out(text: str, sentences: Sequence[str]) -> str:
    """Remove a reason from the end of the text if a wait below repeats it."""
    start, _, reason = text.partition(": ")
    if any(text == sentence for sentence in sentences):
        return ""
    return start if reason and any(sentence.endswith(reason) for sentence in sentences) else text


def _wait_lines(wait: Any, shown: set[str]) -> list[live_view.Line]:
    """The lines of a wait: its cause, its start and end, the commands that end it, with when to use
    each, and whom to ask for others. Lines that were ``shown`` above are left out.
    """
    line: live_view.Line = [(f"- {symbols.clean(wait['sentence'])}", "default")]
    times = [
        f"{word} {symbols.moment(wait[word])}" for word in ("since", "until") if wait.get(word)
    ]
    if times:
        line.append((f"  ({', '.join(times)})", "bright_black"))
    found = [_remedy(item) for item in wait.get("remedies") or []]
    found += [f"    {symbols.clean(sentence)}" for sentence in wait.get("ask") or []]
    new = [text for text in found if text not in shown]
    shown.update(new)
    return [line, *([(text, "default")] for text in new)]


def _remedy(item: Any) -> str:
    when = f"{symbols.clean(item['when'])}: " if item.get("when") else ""
    return f"    next: {when}{symbols.clean(item['command'])}"


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


def verdict_lines(verdicts: Sequence[Any], sentences: Sequence[str] = ()) -> list[live_view.Line]:
    """The lines of gates in the order of evaluation. Blocking ones show their reason, unless one of
    the ``sentences`` above contains it.
    """
    width = max((len(str(verdict["gate"])) for verdict in verdicts), default=0)
    return [_line(verdict, width, sentences) for verdict in verdicts]


def _line(verdict: Any, width: int, sentences: Sequence[str]) -> live_view.Line:
    word = "open" if verdict.get("passed") else "blocked"
    mark, colour = symbols.glyph(word)
    line: live_view.Line = [
        (f"{mark} {symbols.clean(verdict['gate']):<{width}}  {word:<7}", colour)
    ]
    reason = symbols.clean(output.dig(verdict, "reason") or "")
    is_repeated = not verdict.get("passed") and any(reason in sentence for sentence in sentences)
    if reason and not is_repeated:
        line.append((f"  {reason}", "default"))
    if verdict.get("hosts"):
        line.append((f"  ({output.counted(verdict['hosts'], 'host')})", "default"))
    evidence = verdict.get("evidence")
    if evidence is not None:
        row = f"{evidence['collection']}/{evidence['id']}"
        line.append((f"  [{symbols.clean(row)} at {evidence['position']}]", "bright_black"))
    return line
