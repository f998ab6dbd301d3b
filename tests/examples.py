"""How many examples a property is tried with: all of them in `make lab`, a fifth in `make test`."""

from typing import Any

from hypothesis import settings

WHOLE = 100
"""examples of a property that does not say how many, in the profile `lab`"""
FEWEST = 5


def examples(count: int = WHOLE, **others: Any) -> settings:
    """Return the settings of a property: `@examples(300)` tries 300 in `make lab`, 60 in `make test`."""
    return settings(max_examples=max(count * settings.default.max_examples // WHOLE, FEWEST), **others)
