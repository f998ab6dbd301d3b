"""The state of a run, out to a checkpoint and back: weights, optimizer state, position, choices."""

import logging
import math
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import numpy as np

import cstool
from cstool.foundation.errors import CheckpointError, NonFiniteError, StoreError
from cstool.model.ir import Graph
from cstool.model.params import DpoParams, Params, written_states
from cstool.model.params.sections.tuning import has_adapters, is_magnitude, is_of_adapter
from cstool.training.kernels.magnitudes import first_non_finite
from cstool.training.machine.memoryx.memoryx import MemoryX
from cstool.training.machine.renamed import as_this_model
from cstool.training.store import (
    INDICES,
    SPARSITY,
    CheckpointWriter,
    FileStore,
    Folded,
    SavedState,
    SparseTensors,
    adapters_of,
    check_choices,
    checked_indices,
    index_kind,
    left_out_by,
    step_of,
    streamed_of,
    untied_by,
)

log = logging.getLogger("cstool")
Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
FORMS_BEFORE = {"optimizer_form": "pytorch", "apply_attention_sinks": True}
"""the forms of a checkpoint that names none: of before there was a choice"""
ANOTHER_FOLDER = "the file is of another model or optimizer: choose another --model_dir"


@dataclass(frozen=True)
class Position:
    """Where a run is."""

    step: int = 0
    batches: int = 0
    """batches that the input workers have handed out, over all epochs"""
    batch_size: int = 0
    """samples of each of these; 0 where there were none"""


def environment() -> dict[str, str]:
    """Versions and the CPU, which the bits of a run depend on beside the params."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "cstool": cstool.__version__,
        "numpy": np.__version__,
        "numba": numba.__version__,
        "blas": f"{blas.get('name', '?')} {blas.get('version', '?')}",
        "cpu": f"{platform.machine()} {llvmlite.binding.get_host_cpu_name()}",
    }


def forms(params: Params) -> dict[str, Any]:
    """The form, the vendor's or PyTorch's, of every computation in which the two differ, where it matters."""
    found: dict[str, Any] = {}
    optimizer, model = params.optimizer, params.model
    model = model.policy_model if isinstance(model, DpoParams) else model
    if optimizer is not None and optimizer.form_matters:
        found["optimizer_form"] = optimizer.form
    return found | {switch: getattr(model, switch) for switch in model.switches}


def state_values(
    memoryx: MemoryX, position: Position, *, model_name: str, seed: int, choices: dict[str, Any], params: dict[str, Any]
) -> dict[str, Any]:
    """The state of a run beside its arrays.

    Args:
        memoryx: with all updates applied
        choices: of the run, on which its bits depend
        params: as a file
    """
    described = {
        name: {
            "shape": list(sparse.shape),
            "algorithm": sparse.group.algorithm,
            "density": sparse.density,
            "non_zeros": sparse.count,
        }
        for name, sparse in memoryx.arrays.sparse.items()
    }
    return {
        "global_step": position.step,
        "dataloader": {"batches_streamed": position.batches, "batch_size": position.batch_size},
        "random": {"seed": seed, "generator": "philox4x32-10"},
        "choices": {**choices, **environment()},
        **({SPARSITY: described} if described else {}),
        "__metadata__": [{"version": cstool.__version__, "model_name": model_name, "params": params}],
    }


def save_state(path: Path, memoryx: MemoryX, values: dict[str, Any]) -> int:
    """Write a checkpoint, streaming panel by panel.

    Args:
        memoryx: with all updates applied
        values: of `state_values`

    Returns:
        bytes of its tensors

    Raises:
        CheckpointError: it cannot be written; nothing of it is left
        NonFiniteError: a weight is NaN or infinite; likewise
    """
    kinds = {name: index_kind(sparse.weight.size) for name, sparse in memoryx.arrays.sparse.items()}
    indices_bytes = sum(kinds[name].itemsize * sparse.count for name, sparse in memoryx.arrays.sparse.items())
    left_out = left_out_by(values, memoryx.arrays.graph)
    left_out_bytes = 4 * sum(memoryx.arrays.graph.weights[name].size for name in left_out)
    total_bytes = memoryx.arrays.kept_bytes + indices_bytes - left_out_bytes
    with CheckpointWriter(path, total_bytes=total_bytes) as writer:
        for weight in memoryx.arrays.graph.weights:
            if weight in left_out:
                continue
            sparse = memoryx.arrays.sparse.get(weight)
            if sparse is not None:
                kind = kinds[weight]
                indices = (part.astype(kind) for part in sparse.indices())
                writer.add_tensor(f"model.{weight}{INDICES}", (sparse.count,), kind.name, indices)
            for name in memoryx.arrays.of(weight):
                shape = memoryx.arrays.shape(name) if sparse is None else (sparse.count,)
                with closing(memoryx.arrays.chunks(name)) as chunks:
                    checked = _finite(chunks, name, values["global_step"]) if name.startswith("model.") else chunks
                    writer.add_tensor(name, shape, "float32", checked)
        for alias, weight in memoryx.arrays.graph.aliases.items():
            if weight in left_out:
                continue
            writer.link(f"model.{alias}", f"model.{weight}")
        for key, value in values.items():
            writer.add_value(key, value)
    return total_bytes


def adopt_state(store: FileStore, memoryx: MemoryX) -> Position:
    """Go on with the arrays of a file's last commit where they are, and return where the run is.

    Other nodes of MemoryX do so with theirs.

    Raises:
        StoreError: it is of another model, or of another optimizer
        CheckpointError: its record makes no sense
    """
    assert store.record is not None, "it was committed"
    path, values = store.path, store.record.values
    for name, sparse in memoryx.arrays.sparse.items():
        described = values.get(SPARSITY, {}).get(name)
        if described is None:
            raise StoreError(f"{path}: {name} must be sparse, as in this run, got a dense one", ANOTHER_FOLDER)
        if not memoryx.arrays.own[name]:
            continue
        stored = np.sort(store.committed_rows(sparse.indices_array, described["non_zeros"]))
        where = f"{path}: {sparse.indices_array}"
        sparse.place(checked_indices(where, stored, sparse.weight.size), is_stored=True)
    if (left := store.unclaimed()) and (memoryx.optimizer is not None or left[0].startswith("model.")):
        raise StoreError(f"{path}: has {left[0]}, which this run does not keep", ANOTHER_FOLDER)
    return _position(path, values)


def load_state(
    reader: SavedState,
    memoryx: MemoryX,
    *,
    states: frozenset[str],
    strict: bool,
    loaded: Callable[[str], object] = lambda weight: None,
) -> tuple[Position, dict[str, Any]]:
    """Read a checkpoint, or commits of MemoryX, into MemoryX.

    Args:
        strict: whether the checkpoint must hold exactly the weights of the model; if not, weights that it lacks stay
            as they are, and the encoder of a BERT with other heads is taken
        loaded: takes the name of each weight once it is there

    Returns:
        where the run is, and the values of the checkpoint

    Raises:
        CheckpointError: naming the first tensor that is missing, superfluous, or of another shape; or states that
            cannot be had apart
    """
    graph, trains = memoryx.arrays.graph, memoryx.optimizer is not None
    if has_adapters(graph.weights) and (found := next(filter(is_magnitude, reader.tensor_names()), None)) is not None:
        raise CheckpointError(
            f"{reader.path}: must have adapters without magnitudes (DoRA), got {found.removeprefix('model.')}",
            "they answer, and cstool checkpoint merge folds them into the weights; they are not trained here",
        )
    if not trains and not has_adapters(graph.weights) and (adapters := adapters_of(reader)) is not None:
        if untied_by(reader) in graph.aliases:
            raise CheckpointError(
                f"{reader.path}: must have adapters that leave the output layer tied, as it is in this model",
                "--lora evaluates them as they were trained, cstool checkpoint merge makes an untied model of them",
            )
        reader = Folded(reader, adapters["scales"])
    reader = as_this_model(reader, graph, states=states, trains=trains)
    sparse = SparseTensors(reader)
    stored = {name: reader.shape(name) for name in reader.tensor_names() if not sparse.is_index(name)}
    shapes = {**stored, **sparse.shapes}
    elsewhere = {} if strict else other_names(shapes, graph)
    _check_fits(reader.path, shapes | {name: shapes[there] for name, there in elsewhere.items()}, graph, strict)
    if not strict and "model" in states:
        _tell_what_differs(reader.path, shapes, graph, elsewhere)
    if trains and (sparse.shapes or memoryx.arrays.sparse) and "optimizer" in states and "model" not in states:
        raise CheckpointError(
            f"--load_checkpoint_states: must have model in it where weights are sparse, got {written_states(states)}",
            "the optimizer state of a sparse weight goes with its mask",
        )
    if trains and strict and "optimizer" in states:
        _check_optimizer(reader.path, stored, memoryx)
    for weight in graph.weights:
        wanted = [name for name in memoryx.arrays.of(weight) if name.partition(".")[0] in states]
        arrays = [name for name in wanted if name in stored]
        if f"model.{weight}" in wanted and (there := elsewhere.get(f"model.{weight}")) in stored:
            memoryx.arrays.load(f"model.{weight}", reader.in_order(there))
        if weight in memoryx.arrays.sparse or f"model.{weight}" in sparse.shapes:
            _load_sparse(sparse, memoryx, weight, arrays, keeps_state="optimizer" in states)
            arrays = []
        for name in arrays:
            found = f"{_written(reader.shape(name))} {reader.dtype(name)}"
            kept = f"{_written(memoryx.arrays.shape(name))} float32"
            if found != kept:
                raise CheckpointError(f"{reader.path}: {name} must be {kept}, got {found}")
            memoryx.arrays.load(name, reader.in_order(name))
        loaded(weight)
    values = reader.values()
    if not trains:
        position = Position(step_of(reader.path, {"global_step": 0, **values}))
    else:
        parts = {"global_step": "optimizer", "dataloader": "dataloader"}
        missing = {"global_step": 0, "dataloader": {"batches_streamed": 0, "batch_size": 0}}
        if lacking := next((key for key, part in parts.items() if part in states and key not in values), None):
            raise CheckpointError(
                f"{reader.path}: does not say {lacking}, which a run that goes on needs",
                "--load_checkpoint_states model loads the weights alone",
            )
        wants = {key: values[key] if part in states else missing[key] for key, part in parts.items()}
        position = _position(reader.path, wants)
    check_choices(reader.path, values)
    return position, values


ENCODERS = ("model.bert_encoder.", "model.bert.")
"""prefixes of the names of an encoder's weights: as it is pre-trained, and below the heads of other tasks"""


def other_names(stored: Mapping[str, Shape], graph: Graph) -> dict[str, str]:
    """Return the weights of an encoder that a checkpoint has under names of other heads, by the names of this model."""
    found = {}
    for weight in graph.weights:
        name = f"model.{weight}"
        for ours, theirs in (ENCODERS, ENCODERS[::-1]):
            there = theirs + name.removeprefix(ours)
            if name.startswith(ours) and name not in stored and there in stored:
                found[name] = there
    return found


def _difference(stored: Mapping[str, Shape], graph: Graph, elsewhere: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the weights of a model that a checkpoint lacks, and the weights of the checkpoint that the model lacks."""
    lacking = [name for name in graph.weights if f"model.{name}" not in stored and f"model.{name}" not in elsewhere]
    known = {f"model.{name}" for name in graph.weights} | set(elsewhere.values())
    left = [name.removeprefix("model.") for name in stored if name.startswith("model.") and name not in known]
    return lacking, left


def _tell_what_differs(path: Path, stored: Mapping[str, Shape], graph: Graph, elsewhere: Mapping[str, str]) -> None:
    """Log the weights that a checkpoint lacks, and the ones of its own that this model has no use for."""
    lacking, left = _difference(stored, graph, elsewhere)
    if lacking:
        log.warning(f"{path} lacks {', '.join(lacking)}: they begin at random.")
    if left:
        log.warning(f"{path} has {', '.join(left)}, which this model lacks: they are left out.")


def _load_sparse(
    tensors: SparseTensors, memoryx: MemoryX, weight: str, arrays: Sequence[str], *, keeps_state: bool
) -> None:
    """Read a weight that is sparse in the checkpoint, in the run, or in both.

    Args:
        arrays: the wanted arrays of the weight
        keeps_state: whether the run goes on with the optimizer state of the checkpoint

    Raises:
        CheckpointError: it is damaged, or sparse here and dense there and the run is to go on all the same
    """
    key, sparse = f"model.{weight}", memoryx.arrays.sparse.get(weight)
    path = tensors.reader.path
    if key not in arrays:
        return
    if sparse is not None and key not in tensors.shapes:
        if keeps_state:
            raise CheckpointError(
                f"{path}: {weight} must be sparse, as in this run, got a dense one without a mask",
                "--load_checkpoint_states model takes the weights alone, and init_method: topk keeps the largest",
            )
        dense = np.empty(sparse.shape, np.float32)
        tensors.read_into(key, dense)
        sparse.begin(dense)
        return
    indices = tensors.indices(key)
    if sparse is None:
        if keeps_state and memoryx.optimizer is not None:
            raise CheckpointError(
                f"{path}: {weight} must be dense, as in this run, got a sparse one",
                "--load_checkpoint_states model takes the weights alone, with their zeros",
            )
        _load_dense(tensors, memoryx, key, indices)
        return
    if sparse.capacity is not None and len(indices) > sparse.capacity:
        raise CheckpointError(
            f"{path}: {weight} must have at most {sparse.capacity} non-zeros in this run, got {len(indices)}",
            "a lower sparsity makes room for them",
        )
    sparse.place(indices)
    for name in arrays:
        numbers = np.empty(len(indices), np.float32)
        tensors.read_into(name, numbers)
        sparse.write(name, numbers)


def _load_dense(tensors: SparseTensors, memoryx: MemoryX, key: str, indices: Array) -> None:
    numbers = np.empty(len(indices), np.float32)
    tensors.read_into(key, numbers)
    width = math.prod(tensors.shapes[key][1:])

    def read(out: Array, start: int, stop: int) -> None:
        first, last = np.searchsorted(indices, (start * width, stop * width))
        out.fill(0)
        out.reshape(-1)[indices[first:last] - start * width] = numbers[first:last]

    memoryx.arrays.load(key, read)


def _check_heads(path: Path, stored: Mapping[str, Shape], graph: Graph) -> None:
    """Raise the error of a checkpoint whose encoder fits but whose heads are of another task: differences, a way on."""
    elsewhere = other_names(stored, graph)
    # Without pairs of texts an encoder has neither a pooling layer nor segments.
    of_pairs = (".pooler.", ".segment_embeddings.")
    of_encoder = [
        name
        for name in graph.weights
        if f"model.{name}".startswith(ENCODERS) and not any(part in name for part in of_pairs)
    ]
    there = {name: stored.get(elsewhere.get(f"model.{name}", f"model.{name}")) for name in of_encoder}
    if not of_encoder or any(there[name] != graph.weights[name].shape for name in of_encoder):
        return
    lacking, left = _difference(stored, graph, elsewhere)
    if not (lacking or left):
        return
    parts = [f"{verb} {', '.join(names)}" for verb, names in (("lacks", lacking), ("has", left)) if names]
    raise CheckpointError(
        f"{path}: must have the heads of this model, {' and '.join(parts)}",
        "its encoder fits: --disable_strict_checkpoint_loading --load_checkpoint_states model loads what is in both, "
        "and the rest begins at random",
    )


def _check_fits(path: Path, stored: dict[str, tuple[int, ...]], graph: Graph, strict: bool) -> None:
    """Compare names and shapes with the model, in its order."""
    if strict:
        _check_heads(path, stored, graph)
    hint = "the checkpoint is of another model: choose another --model_dir to start fresh, or another checkpoint"
    begins = not has_adapters(stored)
    if strict and not begins and not has_adapters(graph.weights):
        first = next(filter(is_of_adapter, stored)).removeprefix("model.")
        raise CheckpointError(
            f"{path}: has adapters, such as {first}, and this model has none",
            "--lora trains them on; cstool checkpoint merge folds them into the weights",
        )
    for name, weight in graph.weights.items():
        shape = stored.get(f"model.{name}")
        if shape is None and strict and not (begins and is_of_adapter(name)):
            raise CheckpointError(f"{path}: lacks the weight {name} of this model", hint)
        if shape is not None and tuple(shape) != weight.shape:
            raise CheckpointError(
                f"{path}: {name} must be {_written(weight.shape)}, as in this model, got {_written(shape)}", hint
            )
    for name in stored:
        own = name.removeprefix("model.")
        if strict and name.startswith("model.") and own not in graph.weights:
            if (tied := graph.aliases.get(own)) is not None:
                hint = f"here it is tied to {tied}; share_embedding_weights: false in the model's params unties it"
            raise CheckpointError(f"{path}: has the weight {own}, which this model lacks", hint)


def _check_optimizer(path: Path, stored: Iterable[str], memoryx: MemoryX) -> None:
    """Compare the optimizer state that is stored with that which this optimizer keeps."""
    hint = "the checkpoint is of another optimizer: --load_checkpoint_states model loads the weights alone"
    kept = dict.fromkeys(name for name in memoryx.arrays.names if name.startswith("optimizer."))
    found = dict.fromkeys(name for name in stored if name.startswith("optimizer."))
    if missing := next((name for name in kept if name not in found), None):
        raise CheckpointError(f"{path}: lacks {missing}, which this optimizer needs", hint)
    if left_over := next((name for name in found if name not in kept), None):
        raise CheckpointError(f"{path}: has {left_over}, which this optimizer does not keep", hint)


def _position(path: Path, values: Mapping[str, Any]) -> Position:
    """Position of a run by the values of its saved state."""
    streamed = streamed_of(path, values)
    return Position(step_of(path, values), streamed.batches, streamed.batch_size)


def _finite(chunks: Iterable[Array], name: str, step: int) -> Iterator[Array]:
    """Pass the chunks of a weight on, as long as they are finite."""
    for chunk in chunks:
        if first_non_finite(chunk.reshape(-1)) >= 0:
            raise NonFiniteError(
                f"step {step}: the weight {name.removeprefix('model.')} is not finite, so nothing is saved",
                "a lower learning rate, max_gradient_norm or a longer warm-up may help",
            )
        yield chunk


def _written(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
