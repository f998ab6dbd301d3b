"""How fast a trained model would answer on the modelled cluster; the verb behind `cstool estimate --mode infer`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cstool.model.verbs.asked import asked_params

if TYPE_CHECKING:
    from cstool.model.params import Params
    from cstool.plan.estimation.inference import InferRow


def estimate_inference(
    params: str | Path | Params,
    *,
    prompt_tokens: int,
    new_tokens: int,
    batches: Sequence[int] = (1,),
    overrides: Mapping[str, Any] | Sequence[str] | None = None,
    system: str | Path = "cs2",
    num_csx: int | None = None,
) -> list[InferRow]:
    """Predict how a decoder answers on the modelled cluster; nothing runs.

    Args:
        params: a params file of one trainer, or params that are loaded
        prompt_tokens: of each user
        new_tokens: that each is answered with
        batches: users at a time, several to compare
        overrides: values by dotted key
        system: kind of each CSX
        num_csx: wafers that the model may use; None for the fewest that hold it

    Returns:
        For each number of users time to the first token [s], tokens/s, energy per token [J]; all of it modelled

    Raises:
        EstimateError: the model does not generate text, the context is too short, or nothing fits
        ParamsError: the file breaks rules, or there is no such system
    """
    from cstool.plan.estimation.inference import infer_rows, make_infer_request

    request = make_infer_request(
        asked_params(params, overrides),
        str(system),
        prompt_tokens=prompt_tokens,
        new_tokens=new_tokens,
        batches=batches,
        wafers=num_csx,
    )
    return infer_rows(request)
