"""The nouns of Tidegate, their facts and their rules. Pure code: a replay gives the same result."""
