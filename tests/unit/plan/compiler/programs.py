"""Programs for tests of the compiler: small models and the numbers of a real wafer, or of a few PEs."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from cstool.model.ir import Artifact, Graph, Op, Segment
from cstool.model.optimizers import make_optimizer
from cstool.model.params import AdamW, Params, load_params
from cstool.model.system import Fabric, System, load_system
from cstool.plan.compiler import compile_model
from cstool.plan.compiler.compile import MEMORY_PASSES, run_passes
from cstool.plan.compiler.program import Pass, Program, Request
from cstool.plan.compiler.streaming import plan_streaming
from tests.models import FAMILIES, decoder, fc_mnist

FAMILY_NAMES = [*FAMILIES, "fc_mnist"]
UP_TO_STREAMING: tuple[Pass, ...] = (*MEMORY_PASSES, plan_streaming)
ROOT = Path(__file__).parents[4]
SMALL_GPT: dict[str, Any] = {"name": "gpt2", "vocab_size": 256, "hidden_size": 64, "num_heads": 4}
SMALL_GPT |= {"num_hidden_layers": 2, "filter_size": 256, "max_position_embeddings": 128}
"""section of a GPT with two layers"""


@cache
def stock(name: str, system: str = "cs2", overrides: tuple[str, ...] = (), **asked: Any) -> Artifact:
    """Return the artifact of a params file of the project; it is compiled once for all tests."""
    params = load_params(ROOT / "params" / f"{name}.yaml", overrides=overrides)
    return compile_model(params, load_system(system), **asked)


def written_params(file: Path, model: Mapping[str, Any], *, batch_size: int = 48, **init: Any) -> Params:
    """Return params of a model that a file has, with other keys of `trainer.init`."""
    of_text = model["name"] != "fc_mnist"
    loader = {"data_processor": "GptHDF5MapDataProcessor" if of_text else "MNISTDataProcessor", "data_dir": "."}
    settings = {"model": dict(model), "optimizer": {"AdamW": {"learning_rate": 0.1}}, "loop": {"max_steps": 1}, **init}
    fit = {"train_dataloader": {**loader, "batch_size": batch_size}}
    file.write_text(yaml.safe_dump({"trainer": {"init": settings, "fit": fit}}))
    return load_params(file)


def every_family(layers: int = 3, dropout: float = 0.0) -> dict[str, Graph]:
    graphs = {name: decoder(layers=layers, dropout=dropout, **keys) for name, keys in FAMILIES.items()}
    return graphs | {"fc_mnist": fc_mnist()}


def small_system(width: int, height: int, **changes: Any) -> System:
    return replace(load_system("cs2"), name="small", fabric=Fabric(width, height), **changes)


def a_request(system: System | None = None, batch_size: int = 4, **changes: Any) -> Request:
    """Return a request for one system, by default a whole WSE-2."""
    request = Request(
        system=load_system("cs2") if system is None else system,
        num_csx=1,
        batch_size=batch_size,
        micro_batch_size=None,
        execution_mode="weight_streaming",
        operand_bits=16,
        optimizer=make_optimizer(AdamW(), None),
    )
    return replace(request, **changes)


def compiled(graph: Graph, passes: Iterable[Pass], request: Request | None = None) -> Program:
    return run_passes(Program(graph, request or a_request()), tuple(passes), None)


def kernel_cycles(program: Program) -> int:
    """Return what the kernels of a step take on one system, as planned for weight streaming."""
    plan = program.streaming
    return plan.micro_batches * sum(
        segment.count * kernel.cycles.total
        for segment, kernels in zip(program.graph.segments, plan.kernels, strict=True)
        for kernel in kernels
    )


def with_op(graph: Graph, name: str, **changes: Any) -> Graph:
    """Return a graph with one op changed; attributes are added to those that it has."""

    def changed(op: Op) -> Op:
        if op.name != name:
            return op
        attributes = MappingProxyType({**op.attributes, **changes.pop("attributes", {})})
        return replace(op, attributes=attributes, **changes)

    return _with_segments(graph, lambda s: replace(s, ops=tuple(changed(op) for op in s.ops)))


def with_shape(graph: Graph, name: str, shape: tuple[int, ...]) -> Graph:
    """Return a graph with one tensor, weight or input declared with another shape."""

    def shaped(things: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(replace(thing, shape=shape) if thing.name == name else thing for thing in things)

    graph = replace(graph, inputs=shaped(graph.inputs))
    return _with_segments(graph, lambda s: replace(s, tensors=shaped(s.tensors), weights=shaped(s.weights)))


def _with_segments(graph: Graph, change: Any) -> Graph:
    segments: tuple[Segment, ...] = tuple(change(segment) for segment in graph.segments)
    return replace(graph, segments=segments)
