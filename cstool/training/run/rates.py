"""Learning rates that suit the other way to fine-tune: a run begins with a warning.

Adapters learn at about ten times the rate of all weights. Sources: Hu et al., "LoRA", 2021, table 11: adapters of
GPT-2 at 2e-4; Biderman et al., "LoRA learns less and forgets less", 2024, section 4: best from 5e-5 to 5e-4, where all
weights do best from 1e-6 to 5e-5; the documentation of TRL: some ten times as high with adapters. Pre-training is at up
to 6e-4 for GPT-3's smallest model (Brown et al., 2020, table 2.1).
"""

from pathlib import Path

import numpy as np

from cstool.model.params import Params
from cstool.model.params.sections.optimizers import Adam

LEAST_OF_ADAPTERS = 2e-5
"""below it adapters hardly learn"""
MOST_OF_ALL = 1e-3
"""above it all weights of a trained model go astray"""
_LOOKED_AT = 1000
"""steps of a schedule"""


def highest_rate(params: Params, steps: int) -> float:
    """The highest learning rate of so many steps, of a long schedule at some of them."""
    asked = np.unique(np.linspace(0, steps - 1, _LOOKED_AT).astype(int)).tolist()
    return max(params.learning_rate(step) for step in asked)


def unusual_rate(params: Params, base: Path, steps: int) -> str | None:
    """Return the warning about a learning rate that suits the other way to fine-tune, None for a usual one.

    Args:
        base: checkpoint whose weights alone the run begins with
        steps: of the run
    """
    # Rates of other rules have other sizes; with muP they are a narrow model's.
    is_scaled = getattr(params.answering.model, "mup_base_hidden_size", None) is not None
    if not isinstance(params.optimizer, Adam) or is_scaled:
        return None
    highest = highest_rate(params, steps)
    if params.tuning.adapters and highest < LEAST_OF_ADAPTERS:
        return (
            f"The learning rate is at most {highest:g}, as for all weights: adapters hardly learn below "
            f"{LEAST_OF_ADAPTERS:g}, some ten times the rate of all weights, such as 2e-4, is usual for them."
        )
    if not params.tuning and highest > MOST_OF_ALL:
        return (
            f"The learning rate is up to {highest:g}, and all weights of {base} are trained: above {MOST_OF_ALL:g} a "
            "model forgets what it has learned, 1e-6 to 1e-4 is usual for all weights, more is for adapters."
        )
    return None
