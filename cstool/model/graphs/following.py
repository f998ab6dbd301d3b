"""Whether trainers of one file can follow each other."""

from collections.abc import Sequence
from itertools import pairwise

from cstool.foundation.errors import ParamsError
from cstool.model.ir import Graph
from cstool.model.params import Params


def check_following(trainers: Sequence[Params], graphs: Sequence[Graph]) -> list[str]:
    """Check that each trainer can go on from the one before it, and return warnings about idle trainers.

    Args:
        trainers: of one file, in order
        graphs: of their models; may be empty for one trainer

    Raises:
        ParamsError: a trainer goes on from the checkpoint of another model
    """
    warnings = []
    for number, (before, here) in enumerate(pairwise(trainers), start=1):
        looks = here.checkpoint.autoload_last_checkpoint and here.checkpoint_path is None
        if before.model_dir != here.model_dir or not looks:
            continue
        there, now = ({name: w.shape for name, w in graphs[n].weights.items()} for n in (number - 1, number))
        if other := next((name for name in {**there, **now} if there.get(name) != now.get(name)), None):
            rule = f"must have the weights of trainer.{number - 1}, from whose last checkpoint it goes on"
            message = f"{here.path}: trainer.{number}.init.model {rule}, and {other} differs"
            raise ParamsError([(message, "give each a model_dir of its own, or a fit.ckpt_path")])
        first, last = before.loop.max_steps, here.loop.max_steps
        if first is not None and last is not None and last <= first and here.loop.num_steps is None:
            warnings.append(
                f"{here.path}: trainer.{number} finds nothing to train: its max_steps is {last}, and "
                f"trainer.{number - 1}, from whose end it goes on, comes to {first}"
            )
    return warnings
