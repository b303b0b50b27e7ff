"""The shipped examples, raced on every engine."""
