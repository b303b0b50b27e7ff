"""The contract of publications: recipes, guards, readers, races and crashes on every engine."""
