"""The errors of requests about publications."""

from __future__ import annotations

from tidegate import errors


class StaleGeneration(errors.ConditionFailed):
    """A generation as new or newer is already published, so yours was not."""

    code = "stale_generation"


class GenerationExists(errors.ConditionFailed):
    """The publication already has a generation with this id; use another id."""

    code = "generation_exists"


class RecipeMixed(errors.Refused):
    """A publication keeps its recipe: replaced in place, or versions with a pointer."""

    code = "recipe_mixed"
