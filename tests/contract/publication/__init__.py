"""The contract of publications: recipes, guards, readers, races and deaths on every engine."""
