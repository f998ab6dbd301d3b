"""Adapters folded into the weights beside them: the verb behind `cstool checkpoint merge`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cstool.foundation.progress.screen import Shown, told_in_bytes

if TYPE_CHECKING:
    from cstool.foundation.progress import Progress
    from cstool.inference.merging import Comparison


class Merged(NamedTuple):
    """Adapters folded into weights: source, the new checkpoint, its size [bytes], and the number of adapters.

    And the comparison of the logits before and after, the reason against one, or None where none was asked for.
    """

    source: Path
    path: Path
    bytes: int
    adapters: int
    compared: Comparison | str | None


def merge_checkpoint(
    source: str | Path, destination: str | Path, *, compares: bool = True, progress: Shown | Progress = "auto"
) -> Merged:
    """Fold the adapters of a checkpoint into the weights beside them: a checkpoint of a plain model, without state.

    Args:
        source: a checkpoint of adapters; their base is where it was, or in the same folder
        destination: a new file
        compares: whether it gets its name only after a comparison of old and new logits

    Raises:
        CheckpointError: it has no adapters, its base is not there or another one, or the new one cannot be written
        InferenceError: logits differ by more than rounding explains
    """
    from cstool.inference.merging import merge
    from cstool.training.store import find_checkpoint

    path, made = find_checkpoint(source), Path(destination)
    with told_in_bytes(f"Merging {path.name}", progress) as tell:
        count, compared = merge(path, made, tell, compares=compares)
    return Merged(path, made, made.stat().st_size, count, compared)
