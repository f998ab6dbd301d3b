"""`cstool estimate --mode infer`: how fast a trained model answers on the modelled cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cstool.cli.options import option


@dataclass(frozen=True)
class InferFlags:
    """What is asked, and how much of it."""

    prompt_tokens: Annotated[int, option("--prompt_tokens", "N", "With --mode infer: tokens of a prompt.", min=1)] = (
        1024
    )
    new_tokens: Annotated[int, option("--new_tokens", "N", "With --mode infer: tokens of an answer.", min=1)] = 256
    batch: Annotated[str, option("--batch", "N,N,...", "With --mode infer: users that are answered at a time.")] = "1"


def estimate_infer(
    params: Path,
    overrides: Sequence[str],
    flags: InferFlags,
    *,
    system: str,
    num_csx: str | None,
    as_json: bool,
) -> None:
    """Predict time to the first token, and tokens a second."""
    raise NotImplementedError
