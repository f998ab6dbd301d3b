"""The params that a checkpoint was trained with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cstool.foundation.errors import CheckpointError

if TYPE_CHECKING:
    from cstool.model.params import Params


def trained_params(
    checkpoint: Path, overrides: Sequence[str], flags: Mapping[str, tuple[str, Any]]
) -> tuple[Path, Params]:
    """Find the file of a checkpoint by its name or `DIR:STEP`, and the params of its training; see `params_of`."""
    from cstool.training.store import find_checkpoint

    path = find_checkpoint(checkpoint)
    return path, params_of(path, overrides, flags)


def params_of(
    checkpoint: Path, overrides: Mapping[str, Any] | Sequence[str], flags: Mapping[str, tuple[str, Any]]
) -> Params:
    """Return the params that a checkpoint was trained with; logs go to its folder unless they say otherwise.

    Args:
        checkpoint: its file
        overrides, flags: as for `load_params`

    Raises:
        CheckpointError: it cannot be read, or does not have them
        ParamsError: its params cannot be run with, or the overrides or flags are wrong
    """
    import yaml

    from cstool.model.params import parse_params
    from cstool.training.store import open_checkpoint

    with open_checkpoint(checkpoint) as reader:
        metadata: Any = reader.values().get("__metadata__")
    try:
        document = metadata[-1]["params"]
        document["trainer"]["init"]["model_dir"] = str(checkpoint.absolute().parent)
    except (LookupError, TypeError):
        raise CheckpointError(
            f"{checkpoint}: must have the params of its model, it has none", "--params names the file of the model"
        ) from None
    text = yaml.safe_dump(document, sort_keys=False)
    return parse_params(text, str(checkpoint), overrides=overrides, flags=flags, has_lines=False)
