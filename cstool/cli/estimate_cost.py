"""What `cstool estimate` tells of what a training job costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cstool.cli.options import option


@dataclass(frozen=True)
class CostFlags:
    """What a job is charged, and how often something fails."""

    price: Annotated[
        float | None,
        option("--price", "P", "Price of a system for an hour, in any currency: what does it all cost? With --tokens."),
    ] = None
