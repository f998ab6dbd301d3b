"""Arguments that are one of a few words."""

from collections.abc import Sequence

from cstool.foundation.errors import CstoolError
from cstool.foundation.words import did_you_mean


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Check an argument that is one of a few words.

    Raises:
        CstoolError: it is none of these words
    """
    if value not in choices:
        rule = f"must be one of {', '.join(choices)}, got {value!r}"
        raise CstoolError(f"{name}: {rule}", did_you_mean(str(value), choices))
