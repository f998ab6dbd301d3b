"""Predictions of the model for published rates of answering."""

from collections.abc import Mapping
from typing import Any

import yaml

from cstool.foundation.words import counted
from cstool.model.params import parse_params
from cstool.plan.estimation.inference import infer_rows, make_infer_request


def user_tokens_per_s(model: Mapping[str, Any], system: str, prompt_tokens: int, new_tokens: int) -> tuple[float, str]:
    """Return tokens a second of a single user on the fewest wafers that hold a model, and the parts of the time.

    Args:
        model: its section in a params file, and `sequence_length`
        system: of each wafer
        prompt_tokens, new_tokens: of the user
    """
    shape = dict(model)
    shape["max_position_embeddings"] = shape.pop("sequence_length")
    init = {"model": shape, "optimizer": {"AdamW": {"learning_rate": 1e-4}}, "loop": {"max_steps": 1}}
    loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": ".", "batch_size": 1}
    params = parse_params(yaml.safe_dump({"trainer": {"init": init, "fit": {"train_dataloader": loader}}}), "published")
    request = make_infer_request(params, system, prompt_tokens=prompt_tokens, new_tokens=new_tokens, batches=(1,))
    found = infer_rows(request)[0].estimate
    assert found is not None
    return found.user_tokens_per_s, f"on {counted(found.wafers, 'wafer')}, most of the time for {found.bound}"
