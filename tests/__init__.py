"""Tests, by what they prove: `contract` the engines, `domain` the pure core, the rest the whole."""
