"""Adapters in checkpoints of cstool: read out of one, and written as one beside their base."""

import copy
import math
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

import cstool
from cstool.convert.described import Described
from cstool.convert.peft import Adapter
from cstool.convert.source import Array, CstoolSource, check_weights
from cstool.foundation.errors import CheckpointError
from cstool.model.graphs.adapters import adapter_scales, sites_of
from cstool.model.graphs.preference import POLICY
from cstool.model.graphs.tuning import tuned
from cstool.model.params.sections.hooks import Lora
from cstool.model.params.sections.tuning import (
    EMBEDDING_WEIGHTS,
    LORA_WEIGHTS,
    MAGNITUDE,
    Adapters,
    Tuning,
    is_of_head,
)
from cstool.training.store import ADAPTERS, CheckpointWriter, Progress, adapters_of, base_value, open_checkpoint
from cstool.training.store.folding import LORA
from cstool.training.store.saved_state import Meter

FOLD = "cstool checkpoint merge folds them into the weights beside which they are"


def check_base(base: Path, described: Described, heads: Mapping[str, Array]) -> None:
    """Check that a checkpoint has the weights of a model, dense and without adapters, or raise CheckpointError.

    Args:
        heads: weights that are given beside adapters, which it may lack
    """
    with CstoolSource(base) as source:
        if ADAPTERS in source.values:
            raise CheckpointError(f"--base: must be a whole model, got adapters: {base}", FOLD)
        if source.sparse:
            hint = f"cstool checkpoint convert {shlex.quote(str(base))} TARGET --to dense fills them in"
            raise CheckpointError(f"--base: must have dense weights, got sparse ones: {base}", hint)
        check_weights(source, described.graph, heads)


def write_adapters(
    target: Path,
    base: Path,
    described: Described,
    layers: Mapping[str, Adapter],
    where: str,
    progress: Progress,
    heads: Mapping[str, Array] | None = None,
) -> int:
    """Write adapters as a checkpoint without the weights of their base, and return the bytes of its tensors.

    Args:
        base: checked, see `check_base`
        described: its model
        layers: adapters by the name of a layer
        where: file that they are from, for messages
        heads: weights of a head that was trained beside them

    Raises:
        CheckpointError: it cannot be written
        ParamsError: a rank is larger than a layer allows
    """
    groups: dict[Adapters, list[str]] = {}
    for layer, adapter in layers.items():
        groups.setdefault(adapter.adapters, []).append(layer)
    adapters = tuple(
        Adapters(of.rank, tuple(names), of.alpha, of.dropout, of.is_stabilized) for of, names in groups.items()
    )
    tuning = Tuning(adapters=adapters, where=where)
    graph = tuned(described.graph, tuning)
    tensors = {f"model.{layer}{end}": array for layer, adapter in layers.items() for end, array in _arrays(adapter)}
    tensors |= {f"model.{name}": array for name, array in (heads or {}).items()}
    total_bytes = sum(array.nbytes for array in tensors.values())
    meter = Meter(total_bytes, progress)
    metadata = {"version": cstool.__version__, "model_name": described.model.name}
    with CheckpointWriter(target, total_bytes) as writer:
        for name, array in tensors.items():
            writer.add_tensor(name, array.shape, "float32", meter.through(iter([array])))
        writer.add_value("__metadata__", [{**metadata, "params": _with_lora(described.document, adapters)}])
        writer.add_value(ADAPTERS, {"scales": adapter_scales(graph, tuning), "base": base_value(base, graph)})
    return total_bytes


def _arrays(adapter: Adapter) -> Iterator[tuple[str, Array]]:
    """Yield the tensors of an adapter as checkpoints here have them, with the ends of their names."""
    ends = EMBEDDING_WEIGHTS if adapter.is_table else LORA_WEIGHTS
    yield ends[0], np.ascontiguousarray(adapter.a.T) if adapter.is_table else adapter.a
    yield ends[1], adapter.b
    if adapter.magnitude is not None:
        yield MAGNITUDE, adapter.magnitude


def read_heads(path: Path, described: Described) -> dict[str, Array]:
    """Read the weights of a head that was trained beside the adapters of a checkpoint."""
    with open_checkpoint(path) as state:
        kept = set(state.tensor_names())
        names = [name for name in described.graph.weights if is_of_head(name) and f"model.{name}" in kept]
        return {name: np.array(state.read(f"model.{name}")) for name in names}


def read_adapters(path: Path, described: Described) -> tuple[dict[str, Adapter], str | None, tuple[float, ...]]:
    """Read the adapters of a checkpoint; of DPO the policy's, by the names of a decoder's layers.

    Args:
        described: the model of the checkpoint, which may be DPO's

    Returns:
        the adapters by the name of a layer, with one dropout and one kind of scale; the name of the file of their
        base, None where its weights are in the checkpoint; and the rates of dropout that they had

    Raises:
        CheckpointError: it cannot be read, or has none
    """
    asked = Tuning(adapters=_asked(described.document))
    with open_checkpoint(path) as state:
        found = adapters_of(state)
        if found is None:
            raise CheckpointError(f"{path}: must have adapters to be written for PEFT, it has none")
        sites, names = sites_of(described.graph), set(state.tensor_names())
        beside = {layer: sites[layer].adapters(asked) if layer in sites else None for layer in found["scales"]}
        rates = tuple(dict.fromkeys(0.0 if each is None else each.dropout for each in beside.values()))
        is_stabilized = all(each is not None and each.is_stabilized for each in beside.values())
        layers: dict[str, Adapter] = {}
        for layer, scale in found["scales"].items():
            is_table = f"model.{layer}{EMBEDDING_WEIGHTS[0]}" in names
            ends = EMBEDDING_WEIGHTS if is_table else LORA_WEIGHTS
            a, b = (np.array(state.read(f"model.{layer}{end}")) for end in ends)
            a = np.ascontiguousarray(a.T) if is_table else a
            lengths = f"model.{layer}{MAGNITUDE}"
            magnitude = np.array(state.read(lengths)) if lengths in names else None
            divisor = math.sqrt(len(a)) if is_stabilized else len(a)
            adapters = Adapters(len(a), (), scale * divisor, rates[0], is_stabilized)
            layers[layer.removeprefix(POLICY)] = Adapter(a, b, adapters, is_table, magnitude)
    base = found.get("base")
    return layers, None if base is None else Path(base["path"]).name, rates


def _asked(document: Mapping[str, Any]) -> tuple[Adapters, ...]:
    """Return the adapters that the params of a checkpoint ask for; none where they cannot be read."""
    try:
        callbacks = document["trainer"]["init"]["callbacks"]
        found = next(each[LORA] for each in callbacks if LORA in each)
        return tuple(each.adapters for each in Lora.model_validate(found).lora_params)
    except (LookupError, TypeError, StopIteration, ValidationError):
        return ()


def _with_lora(document: Mapping[str, Any], adapters: tuple[Adapters, ...]) -> dict[str, Any]:
    """Return the params of a base with a callback that asks for adapters."""
    found: dict[str, Any] = copy.deepcopy(dict(document))
    init = found["trainer"]["init"]
    for key in ("lora", "frozen"):
        init.pop(key, None)
    others = [each for each in init.get("callbacks") or () if LORA not in each]
    init["callbacks"] = [*others, {LORA: Lora.of(adapters).dump()}]
    return found
