"""Checkpoints converted: the verb behind `cstool checkpoint convert`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cstool.foundation.progress.screen import Shown, told_in_bytes

if TYPE_CHECKING:
    from cstool.convert.convert import Converted
    from cstool.foundation.progress import Progress


def convert_checkpoint(
    source: Path,
    target: Path,
    *,
    params: Path | None = None,
    param_filter: Sequence[str] = (),
    progress: Shown | Progress = "auto",
    **asked: Any,
) -> Converted:
    """Convert a checkpoint from one format to another; it streams, and nothing is overwritten.

    Args:
        params: params file of the model; None where the source says it
        param_filter: names of the weights to make sparse; none for the filter of the params
        asked: as of `cstool.convert.convert.Request`, like source and target

    Raises:
        CheckpointError: it cannot be read, is damaged, or cannot become that
    """
    from cstool.convert.convert import Request, convert
    from cstool.model.params import load_params

    model = None if params is None else load_params(params)
    request = Request(source, target, params=model, param_filter=tuple(param_filter) or None, **asked)
    with told_in_bytes("Saving checkpoint", progress) as tell:
        return convert(request, tell)
