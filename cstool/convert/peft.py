"""Low-rank adapters of the package PEFT: `adapter_config.json` and `adapter_model.safetensors` in a folder.

A module there may be several layers here, as GPT-2's `c_attn` is query, key and value: its adapter has one A for all,
and each layer takes its rows of B. On the way back the A of layers that differ stand one below another, and B has a
block for each: the rank is the sum of theirs. Of a table of tokens A lies turned there. With DoRA there is a length for
each row of the sum, or for each column of a table. PEFT saves the weight beside such an adapter as well, if it is of a
table or of the output layer: it must be the base's. A head that tells classes is trained beside adapters:
its weights are among their tensors, and `modules_to_save` names it.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cstool.convert.hf_family import HfPart
from cstool.convert.hf_names import HEAD as HEAD_NAME
from cstool.convert.hf_names import Place, places_of, tensor_shapes, ties_of, with_prefix
from cstool.convert.hf_target import new_folder, write_json
from cstool.convert.peft_config import CONFIG_NAME, MERGE, TENSORS_NAME, peft_config, read_peft_config
from cstool.convert.safetensors_reader import SafetensorsReader
from cstool.convert.safetensors_writer import SafetensorsWriter
from cstool.convert.source import Array, Source, written
from cstool.foundation.errors import CheckpointError
from cstool.model.graphs.adapters import site_of
from cstool.model.params import (
    BertClassifierParams,
    BertTokenClassifierParams,
    DecoderClassifierParams,
    DecoderParams,
    EncoderDecoderParams,
)
from cstool.model.params.sections.tuning import EMBEDDING, HEAD, Adapters, is_of_head

_LINEAR = ("lora_A.weight", "lora_B.weight")
_TABLE = ("lora_embedding_A", "lora_embedding_B")
_LENGTHS, _SAVED = "lora_magnitude_vector", "base_layer.weight"
_ENDS = "|".join(map(re.escape, (*_LINEAR, *_TABLE, _LENGTHS, _SAVED)))
_NAME = re.compile(rf"base_model\.model\.(.+)\.({_ENDS})").fullmatch
_WITHOUT_HEADS = ("CAUSAL_LM", "SEQ_2_SEQ_LM")
_TASKS: Mapping[type, str] = {
    DecoderClassifierParams: "SEQ_CLS",
    BertClassifierParams: "SEQ_CLS",
    BertTokenClassifierParams: "TOKEN_CLS",
    DecoderParams: _WITHOUT_HEADS[0],
    EncoderDecoderParams: _WITHOUT_HEADS[1],
}
"""kind of model -> the task by which PEFT knows it"""


@dataclass(frozen=True)
class Module:
    """A linear module or a table there, and the layers here that are rows of it.

    Args:
        inputs, outputs: of the module; of a table the tokens and its width
        rows: by the name of a layer, the place of its rows of B and their number
        weight: name of a layer's matrix here
        is_table: whether it is a table
    """

    inputs: int
    outputs: int
    rows: Mapping[str, tuple[Place, int]]
    weight: str
    is_table: bool = False

    @property
    def ends(self) -> tuple[str, str]:
        """Ends of the names of A and B there."""
        return _TABLE if self.is_table else _LINEAR

    def taken(self, layer: str, b: Array) -> Array:
        """Return the rows of a layer, as they are here, of B of (outputs, rank)."""
        return self.rows[layer][0].from_there(b[self._numbers(layer)])

    def put(self, layer: str, rows: Array, b: Array) -> None:
        """Undo `taken`: write the rows of a layer into B."""
        b[self._numbers(layer)] = self.rows[layer][0].to_there(rows)

    def _numbers(self, layer: str) -> Array:
        place, count = self.rows[layer]
        return np.concatenate([np.arange(first, first + size) for first, size in place.runs(0, count)])


@dataclass(frozen=True)
class Adapter:
    """An adapter beside a layer here.

    Args:
        a: (rank, inputs) float32
        b: (outputs, rank) float32
        adapters: rank and scale, without layers
        is_table: whether it is beside a table; then A lies turned in checkpoints here
        magnitude: (outputs,) float32 of DoRA, else None
    """

    a: Array
    b: Array
    adapters: Adapters
    is_table: bool = False
    magnitude: Array | None = None

    @property
    def ends(self) -> tuple[str, str, str]:
        """Ends of the names of A, B and lengths there."""
        return (*(_TABLE if self.is_table else _LINEAR), _LENGTHS)


def modules_of(part: HfPart) -> dict[str, Module]:
    """Return the modules of a model that may have adapters, by their names without prefix."""
    places = places_of(part.family, part.model, part.graph)
    shapes = tensor_shapes(part.family, part.model, places, part.graph)
    found: dict[str, Module] = {}
    tied = {equal: name for name, equal in ties_of(part.family).items()}
    for op in part.graph.ops:
        if (site := site_of(op, part.graph.aliases)) is None:
            continue
        weight = part.graph.weights[op.weights[0]]
        place, is_table = places[weight.name], site.short == EMBEDDING
        shape = shapes[place.tensor]
        name = place.tensor.removesuffix(".weight")
        if site.short == HEAD and site.module != weight.name.removesuffix(".weight"):
            name = tied.get(place.tensor, name).removesuffix(".weight")
        # A convolution, with more dimensions there, has another kind of adapter; two stacks of layers share a table.
        if len(shape) == 2 and not (is_table and isinstance(part.model, EncoderDecoderParams)):
            inputs, outputs = shape if place.transposed or is_table else shape[::-1]
            if is_table:
                place = Place(place.tensor, 0, outputs, outputs)
            rows = {site.module: (place, outputs if is_table else weight.shape[0])}
            earlier = found[name].rows if name in found else {}
            found[name] = Module(inputs, outputs, {**earlier, **rows}, weight.name, is_table)
    return found


def peft_folder(path: Path) -> Path:
    """Return the folder of an adapter, given itself or by its file of tensors.

    Raises:
        CheckpointError: it has no config or no tensors
    """
    folder = path if path.is_dir() or path.name != TENSORS_NAME else path.parent
    for name in (CONFIG_NAME, TENSORS_NAME):
        if not (folder / name).is_file():
            hint = (
                "files of Python code (.bin) are not read" if name == TENSORS_NAME else "--base is for adapters alone"
            )
            raise CheckpointError(f"{path}: must be the folder of an adapter of PEFT, lacks {name}", hint)
    return folder


def heads_of(part: HfPart) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the weights of a head that tells classes: by their names in a folder of PEFT's, ours and their shapes."""
    places = places_of(part.family, part.model, part.graph)
    return {
        f"base_model.model.{place.tensor}": (name, part.graph.weights[name].shape)
        for name, place in places.items()
        if is_of_head(name)
    }


def read_peft_heads(folder: Path, part: HfPart) -> dict[str, Array]:
    """Read the weights of a head that was trained beside the adapters of a folder, by their names here.

    Raises:
        CheckpointError: one is damaged or of another shape, or the model tells no classes
    """
    config, file, heads = read_peft_config(folder / CONFIG_NAME), folder / TENSORS_NAME, heads_of(part)
    if config.heads and not heads:
        rule = f"modules_to_save must be left out for a {part.family.class_name}, which tells no classes"
        raise CheckpointError(f"{folder / CONFIG_NAME}: {rule}, got {', '.join(config.heads)}")
    with SafetensorsReader(file) as reader:
        names = [name for name in reader.names() if name in heads]
        return {heads[name][0]: _read(file, reader, name, heads[name][1]) for name in names}


def read_peft(folder: Path, part: HfPart, base: Source) -> dict[str, Adapter]:
    """Read the adapters of a folder.

    Args:
        part: the base, as a model of Hugging Face's
        base: its weights

    Returns:
        the adapters by the name of a layer here, in the order of the file

    Raises:
        CheckpointError: it is damaged, of another model, or has parts that adapters lack here
    """
    config, file = read_peft_config(folder / CONFIG_NAME), folder / TENSORS_NAME
    modules = modules_of(part)
    found: dict[str, Adapter] = {}
    with SafetensorsReader(file) as reader:
        for path in _paths(file, reader, modules, part, config.has_magnitudes):
            module, adapters = modules[path.removeprefix(part.family.prefix)], config.adapters(path)
            whole, rank = f"base_model.model.{path}", adapters.rank
            shapes = (rank, module.inputs), (module.outputs, rank)
            a, b = (_read(file, reader, f"{whole}.{module.ends[k]}", shapes[k], k) for k in range(2))
            lengths = None
            if config.has_magnitudes:
                lengths = _read(file, reader, f"{whole}.{_LENGTHS}", (module.outputs,))[:, None]
            if f"{whole}.{_SAVED}" in reader.names():
                _check_saved(file, reader, f"{whole}.{_SAVED}", base, module.weight)
            for layer in module.rows:
                own = None if lengths is None else module.taken(layer, lengths)[:, 0]
                found[layer] = Adapter(a, module.taken(layer, b), adapters, module.is_table, own)
    return found


def _paths(
    file: Path, reader: SafetensorsReader, modules: Mapping[str, Module], part: HfPart, has_magnitudes: bool
) -> Iterator[str]:
    """Yield the paths of modules that have all tensors; any other tensor is refused."""
    names = dict.fromkeys(name for name in reader.names() if name not in heads_of(part))
    if not names:
        raise CheckpointError(f"{file}: must have adapters in it, it has none")
    tensors = {place.tensor for place in places_of(part.family, part.model, part.graph).values()}
    known: dict[str, str] = {}
    for name in names:
        match = _NAME(name)
        if match is None:
            raise CheckpointError(f"{file}: must have A and B of linear layers and tables alone, got {name}", MERGE)
        path, end = match.groups()
        module = path.removeprefix(part.family.prefix)
        if module not in modules:
            kind = part.family.model_type
            hint = f"the base is a {kind} there; --model_type names another family that computes the same"
            if module == part.family.names.get(HEAD_NAME) or f"{module}.weight" in tensors:
                hint = "experts, tables of positions or of two stacks, norms and convolutions take no adapters here"
            raise CheckpointError(f"{file}: must have adapters of linear layers of the base, got {path}", hint)
        if known.setdefault(module, path) != path:
            raise CheckpointError(f"{file}: must have {module} once, got {known[module]} and {path}")
        wanted = (*modules[module].ends, *[_LENGTHS] * has_magnitudes)
        for other in (f"base_model.model.{path}.{each}" for each in wanted):
            if other not in names:
                raise CheckpointError(f"{file}: must have {other} beside {name}, lacks it")
        if end not in (*wanted, _SAVED):
            rule = f"{CONFIG_NAME} says use_dora: false" if end == _LENGTHS else "the module is of another kind"
            raise CheckpointError(f"{file}: must have no {name}, {rule}")
    yield from known.values()


def _read(file: Path, reader: SafetensorsReader, name: str, wanted: tuple[int, ...], of_rank: int = 0) -> Array:
    """Return a checked tensor of an adapter.

    Args:
        wanted: its shape
        of_rank: of a matrix, the dimension that is the rank
    """
    shape = reader.shape(name)
    if shape != wanted:
        is_fit = len(shape) == len(wanted) == 2 and shape[1 - of_rank] == wanted[1 - of_rank]
        why = f"as {CONFIG_NAME} says" if is_fit else "as in the base"
        raise CheckpointError(f"{file}: {name} must be {written(wanted)}, {why}, got {written(shape)}")
    reader.check_dtype(name)
    array = reader.rows(name, 0, shape[0])
    if not np.isfinite(array).all():
        raise CheckpointError(f"{file}: {name} must be finite, has NaN or infinite numbers")
    return array


def _check_saved(file: Path, reader: SafetensorsReader, name: str, base: Source, weight: str) -> None:
    """Check that a weight that was saved beside its adapter is the base's, or raise CheckpointError."""
    start, found = 0, base.shapes[f"model.{weight}"] == reader.shape(name)
    for rows in base.rows(f"model.{weight}") if found else ():
        found = found and np.array_equal(rows, reader.rows(name, start, start + len(rows)))
        start += len(rows)
    if not found:
        raise CheckpointError(f"{file}: {name} must have the numbers of the base, has others", MERGE)


def write_peft(
    folder: Path, part: HfPart, layers: Mapping[str, Adapter], base_name: str | None, heads: Mapping[str, Array]
) -> int:
    """Write adapters as a folder of PEFT's, and return the bytes of its tensors.

    Args:
        folder: new, or empty
        part: the base, as a model of Hugging Face's
        layers: adapters by the name of a layer here, with a common dropout and one kind of scale
        base_name: of the base; None where it is not known
        heads: weights of a head that was trained beside them, by their names here

    Raises:
        CheckpointError: an adapter is of no linear module there, or the folder cannot be written
    """
    modules = modules_of(part)
    found = {
        with_prefix(part.family, f"{name}.weight").removesuffix(".weight"): _joined(module, own)
        for name, module in modules.items()
        if (own := {layer: layers[layer] for layer in module.rows if layer in layers})
    }
    known = {layer for module in modules.values() for layer in module.rows}
    if other := [layer for layer in layers if layer not in known]:
        kind = part.family.model_type
        raise CheckpointError(f"{folder}: adapters of a {kind} must be of its linear layers, got {other[0]}")
    tensors = {
        f"base_model.model.{path}.{end}": array
        for path, each in found.items()
        for end, array in zip(each.ends, (each.a, each.b, each.magnitude), strict=True)
        if array is not None
    }
    names = {name: tensor for tensor, (name, _) in heads_of(part).items()}
    tensors |= {names[name]: array for name, array in heads.items()}
    total_bytes = sum(array.nbytes for array in tensors.values())
    # Other tasks have heads, whose weights PEFT wants beside the adapters; without a task it takes those of the base.
    task = next((task for kind, task in _TASKS.items() if isinstance(part.model, kind)), None)
    config = peft_config(
        {path: each.adapters for path, each in found.items()},
        _targets(part, modules, found),
        base_name=base_name,
        task_type=task if heads or task in _WITHOUT_HEADS else None,
        saved=list(dict.fromkeys(name.rpartition(".")[0] for name in heads)),
        is_transposed=part.family.is_transposed,
        has_magnitudes=any(each.magnitude is not None for each in found.values()),
    )
    with new_folder(folder, total_bytes, "an adapter") as temporary:
        shapes = {name: array.shape for name, array in tensors.items()}
        with SafetensorsWriter(temporary / TENSORS_NAME, shapes) as writer:
            for name, array in tensors.items():
                writer.write_rows(name, 0, array)
        write_json(temporary / CONFIG_NAME, config)
    return total_bytes


def _joined(module: Module, layers: Mapping[str, Adapter]) -> Adapter:
    """Return the adapter of a module that adds the same as the adapters of its layers.

    Scales of several layers may differ: the first one is kept, the others go into their rows of B.
    """
    first, *others = layers.values()
    scale = first.adapters.scale
    is_shared = all(np.array_equal(each.a, first.a) and each.adapters.scale == scale for each in others)
    a = first.a if is_shared else np.concatenate([each.a for each in layers.values()])
    b = np.zeros((module.outputs, len(a)), np.float32)
    column = 0
    lengths = None if first.magnitude is None else np.zeros((module.outputs, 1), np.float32)
    for layer, each in layers.items():
        if lengths is not None and each.magnitude is not None:
            module.put(layer, each.magnitude[:, None], lengths)
        block = b if is_shared else b[:, column : column + len(each.a)]
        module.put(layer, (each.b * (each.adapters.scale / scale)).astype(np.float32), block)
        column += len(each.a)
    divisor = math.sqrt(len(a)) if first.adapters.is_stabilized else len(a)
    adapters = replace(first.adapters, rank=len(a), alpha=scale * divisor)
    return Adapter(a, b, adapters, module.is_table, None if lengths is None else lengths[:, 0])


def _targets(part: HfPart, modules: Mapping[str, Module], found: Mapping[str, Adapter]) -> list[str]:
    """Return names that find the modules, as short as they can be.

    PEFT takes the end of a module's name, so it must be the end of no module without an adapter. Where the model there
    has modules that are unknown here, names are whole.
    """
    if part.family.passed_tensors:
        return list(found)
    ends: dict[str, set[bool]] = {}
    for name in modules:
        path = with_prefix(part.family, f"{name}.weight").removesuffix(".weight")
        ends.setdefault(path.rpartition(".")[2], set()).add(path in found)
    short = [path.rpartition(".")[2] for path in found]
    return list(dict.fromkeys(end if ends[end] == {True} else path for path, end in zip(found, short, strict=True)))
