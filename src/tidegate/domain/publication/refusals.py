"""What a request about a publication is refused with."""

from __future__ import annotations

from tidegate import errors


class StaleGeneration(errors.ConditionFailed):
    """A generation as new or newer is published already; yours stays unseen."""

    code = "stale_generation"


class GenerationExists(errors.ConditionFailed):
    """The publication has a generation with this id; take another."""

    code = "generation_exists"


class RecipeMixed(errors.Refused):
    """A publication keeps to one recipe: in place, or versions behind a pointer."""

    code = "recipe_mixed"
