"""Groups of weights as a params file would give them."""

from pathlib import Path
from typing import Any

from cstool.model.params.sections.sparsity import SparsityParams, UpdateParams


def group(sparsity: Any = 0.5, *, update: dict[str, Any] | None = None, **keys: Any) -> SparsityParams:
    """A group; shares are given as sections, `update` as in the file."""
    if update is not None:
        keys["update"] = updates(**update)
    given = {name: value for name, value in {"sparsity": sparsity, **keys}.items() if value is not None}
    return SparsityParams.model_validate(given, context={"folder": Path()})


def updates(**keys: Any) -> UpdateParams:
    """An update section."""
    return UpdateParams.model_validate(keys)
