"""What Tidegate is about: nouns, their facts, their rules. Pure, so that a replay is a proof."""
