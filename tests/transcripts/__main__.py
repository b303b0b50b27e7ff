"""Writes the current results into all transcripts: `python -m tests.transcripts`. Then read the
diff.
"""

from __future__ import annotations

from tests.transcripts.player import replay
from tests.transcripts.test_transcripts import STORIES

for story in STORIES:
    text = story.read_text()
    if (now := replay(text)) != text:
        story.write_text(now)
        print(f"wrote {story.name}")
