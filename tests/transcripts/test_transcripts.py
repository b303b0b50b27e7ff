"""Each transcript gives the same results again. `python -m tests.transcripts` rewrites them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcripts.player import VERBS, replay

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.stem)
def test_a_transcript_gives_the_recorded_results(story: Path) -> None:
    text = story.read_text()

    assert replay(text) == text, "if it is meant, run python -m tests.transcripts"


def test_uses_every_verb() -> None:
    used = {line.split(" ")[0] for story in STORIES for line in story.read_text().splitlines()}

    assert VERBS.keys() <= used


def test_replaces_an_old_result_and_keeps_comments() -> None:
    text = "# One host.\n\nhosts e1\n----\nan old answer\n\ndispatch\n"

    assert replay(text) == (
        "# One host.\n\nhosts e1\n----\nHostEnrolled e1\n\ndispatch\n----\nnothing\n"
    )
