"""Predictions of the model for published rates of inference, and for published kernels of inference."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from cstool.foundation.words import counted
from cstool.model.ir import MatMul
from cstool.model.params import parse_params
from cstool.model.system import Fabric, System
from cstool.plan.estimation.inference import infer_rows, make_infer_request
from cstool.plan.timing.mesh import matvec_cycles, mesh_allreduce_cycles, rounds_cycles
from cstool.plan.timing.pe import Pe
from cstool.plan.timing.resident import tile


def user_tokens_per_s(
    model: Mapping[str, Any], system: System, prompt_tokens: int, new_tokens: int
) -> tuple[float, str]:
    """Return tokens a second of a single user on the fewest wafers that hold a model, and a text with the largest part.

    Args:
        model: section of the model in a params file, with `sequence_length`
        system: kind of each wafer
        prompt_tokens, new_tokens: lengths of prompt and answer
    """
    shape = dict(model)
    shape["max_position_embeddings"] = shape.pop("sequence_length")
    init = {"model": shape, "optimizer": {"AdamW": {"learning_rate": 1e-4}}, "loop": {"max_steps": 1}}
    loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": ".", "batch_size": 1}
    params = parse_params(yaml.safe_dump({"trainer": {"init": init, "fit": {"train_dataloader": loader}}}), "published")
    request = make_infer_request(params, system.name, prompt_tokens=prompt_tokens, new_tokens=new_tokens, batches=(1,))
    found = infer_rows(replace(request, system=system))[0].estimate
    assert found is not None
    return found.user_tokens_per_s, f"on {counted(found.wafers, 'wafer')}, most of the time for {found.bound}"


def product_cycles(system: System, side: int, product: Sequence[int], groups: int | None) -> float:
    """Return the cycles of a product of 16-bit operands on a square of PEs: two matrices, or a matrix and a vector.

    Args:
        system: of the PEs
        side: of the square [PEs]
        product: tokens, inputs and outputs; one token is a vector, and all PEs of a line get its sums
        groups: number of groups of a line; None for two matrices
    """
    tokens, inputs, outputs = product
    pe = Pe(replace(system, fabric=Fabric(side, side)), 16)
    if tokens > 1:
        return float(rounds_cycles(pe, tokens, inputs, outputs))
    i, o, across = tile(pe, MatMul(1, inputs, outputs))
    return float(matvec_cycles(pe, i, o, users=1) + mesh_allreduce_cycles(pe, across, o, groups))
