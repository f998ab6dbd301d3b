"""One conversion: from a checked request to the written checkpoint."""

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cstool
from cstool.convert.adapters import FOLD, check_base, read_adapters, read_heads, write_adapters
from cstool.convert.checkpoint_target import write_checkpoint
from cstool.convert.described import Described, describe
from cstool.convert.gguf_reader import is_gguf
from cstool.convert.gguf_source import GgufSource
from cstool.convert.gguf_tokenizer import gguf_tokenizer
from cstool.convert.hf_source import HfPartsSource, HfSource
from cstool.convert.hf_target import CONFIG_NAME, check_free, write_hf
from cstool.convert.hf_tokenizer import choose_tokenizer, describe_tokenizer, tokenizer_file
from cstool.convert.peft import Adapter, peft_folder, read_peft, read_peft_heads, write_peft
from cstool.convert.peft_config import CONFIG_NAME as ADAPTER_CONFIG
from cstool.convert.source import CstoolSource, PolicySource, Source, check_weights, has_policy, weights_of
from cstool.convert.sparsify import Kept, sparsify
from cstool.convert.training_text import training_text
from cstool.convert.vendor_reader import is_vendor_checkpoint
from cstool.convert.vendor_source import VendorSource
from cstool.foundation.errors import CheckpointError
from cstool.model.params import DprParams, Params, VisionTransformerParams
from cstool.training.data import tokenizer_beside
from cstool.training.data.tokenizer_files import file_beside, files_beside
from cstool.training.store import ADAPTERS, CheckpointReader, Progress, find_checkpoint
from cstool.training.store.foreign import check_no_adapter
from cstool.training.store.saved_state import no_progress

FORMATS = ("cstool", "hf", "gguf", "vendor", "peft")
"""formats that can be read"""
TARGETS = ("dense", "sparse", "hf", "peft")
"""formats that can be written"""


@dataclass(frozen=True)
class Request:
    """A request for one conversion.

    Args:
        source: file or folder, or `DIR:STEP`, `DIR:latest`
        target: file, or folder for `hf` and `peft`
        source_format: one of `FORMATS`; None to find out
        to: one of `TARGETS`; None for dense where the source is not cstool's own
        params: of the model; None where the source says it
        sparsity: share of zeros to make; None keeps the zeros of the source
        param_filter: names of the weights to make sparse; None for the filter of the params
        shard_bytes: most of a file of `hf` [bytes]; None for one file
        tokenizer: for `hf`, "bytes" or a tokenizers JSON file; None for the tokenizer of the training data, if known
        model_type: for `hf`, model type of the config.json to write; None for the source's type, or the first that fits
            (for adapters, the type of their base there)
        base: of adapters that are read, the checkpoint beside whose weights they are; None where a model is read
        base_name: for `peft`, name of the base there; None for the file of the base
    """

    source: Path
    target: Path
    source_format: str | None = None
    to: str | None = None
    params: Params | None = None
    sparsity: float | None = None
    param_filter: tuple[str, ...] | None = None
    shard_bytes: int | None = None
    tokenizer: str | None = None
    model_type: str | None = None
    base: Path | None = None
    base_name: str | None = None


@dataclass(frozen=True)
class Converted:
    """Result of a conversion.

    Args:
        path: of the checkpoint
        config_path: of the file that describes its model; None where none was written
        tokenizer_path: of the tokenizer that lay beside a model of Hugging Face's; None where none was written
        source_format: one of `FORMATS`
        target_format: one of `TARGETS`
        bytes: of the tensors
        weights: their number
        densities: of the sparse ones, by name
        notes: parts of the source that are left out
    """

    path: Path
    config_path: Path | None
    tokenizer_path: Path | None
    source_format: str
    target_format: str
    bytes: int
    weights: int
    densities: Mapping[str, float]
    notes: tuple[str, ...]


def convert(request: Request, progress: Progress = no_progress) -> Converted:
    """Convert a checkpoint, tensor by tensor and range by range.

    Raises:
        CheckpointError: the source cannot be read or is of another model, or the target cannot be written; then
            nothing of it is left
        NonFiniteError: a weight that is to keep its largest numbers has NaN
        ParamsError: the weights to make sparse cannot be sparse
    """
    request = replace(request, source=find_checkpoint(request.source))
    if request.base is not None or request.source_format == "peft":
        return _from_peft(request, progress)
    check_no_adapter(request.source)
    source_format = request.source_format or _format_of(request.source)
    if request.to == "peft":
        return _to_peft(request, source_format)
    to = request.to or ("dense" if source_format != "cstool" else None)
    if to is None:
        # A missing source, or one that is no checkpoint, is reported first.
        with CheckpointReader(request.source):
            pass
        raise CheckpointError(f"--to: must be given for a checkpoint of cstool, one of {', '.join(TARGETS)}")
    if source_format == "cstool" and to != "dense":
        _check_whole(request.source)
    whole = described = None
    of_policy = source_format == "cstool" and has_policy(request.source)
    if of_policy or (source_format, to) != ("cstool", "dense") or request.params is not None:
        whole = describe(request.source, source_format, request.params)
        # DPO weights in the vendor's files stay as they are; in all other cases the policy is wanted.
        described = whole if (source_format, to) == ("vendor", "dense") else whole.of_policy(request.params is None)
    for form, named in ((source_format, None), (to, request.model_type)):
        if form == "hf":
            assert described is not None
            described.parts(named)
    config = _config_path(request.target, to, described)
    beside = None if source_format == "gguf" else tokenizer_file(request.source, source_format == "hf")
    files = {} if to == "hf" else _carried(beside, request.target)
    made, left_out = ({}, ()) if source_format != "gguf" else gguf_tokenizer(request.source, request.target, to)
    files |= made
    carried = next(iter(files), None)
    _check_new(request.target, to, config, files)
    takes_policy = of_policy or (source_format == "vendor" and described is not whole)
    with _open(request.source, source_format, described if source_format == "hf" else whole) as opened:
        source = PolicySource(opened, _metadata(described)) if takes_policy and described is not None else opened
        if described is not None:
            check_weights(source, described.graph)
        kept: dict[str, Kept] = {}
        notes = [*([] if described is None else described.notes), *left_out]
        if to == "hf":
            assert described is not None
            needs_none = isinstance(described.model, VisionTransformerParams) and request.tokenizer is None
            chosen = None if needs_none else choose_tokenizer(request.tokenizer, described.data_folders, beside, notes)
            parts = [
                (part, None if chosen is None else describe_tokenizer(chosen, part.model))
                for part in described.parts(request.model_type)
            ]
            size_bytes = write_hf(source, request.target, parts, request.shard_bytes, progress)
        else:
            if to == "sparse":
                assert described is not None
                kept = sparsify(source, described.graph, request.params, request.sparsity, request.param_filter)
            elif isinstance(source, CstoolSource) and not source.sparse:
                raise CheckpointError(f"{source.path}: must have sparse weights to become dense, it has none")
            size_bytes = write_checkpoint(source, request.target, kept, progress)
            for path, content in files.items():
                _write_new(path, content)
            if config is not None:
                assert described is not None
                _write_new(
                    config, training_text(described, request.target, carried).encode("utf-8", "backslashreplace")
                )
        densities = {name: found.count / math.prod(source.shapes[f"model.{name}"]) for name, found in kept.items()}
        count = len(weights_of(source))
    of_both = (source_format, to, size_bytes, count, densities, (*source.notes, *notes))
    return Converted(request.target, config, carried, *of_both)


def _from_peft(request: Request, progress: Progress) -> Converted:
    """Convert adapters of PEFT's to a checkpoint beside the checkpoint of their base."""
    if request.source_format not in (None, "peft"):
        raise CheckpointError(f"--base: must stand beside an adapter of PEFT, got --from {request.source_format}")
    if request.to not in (None, "dense"):
        raise CheckpointError(f"--to: must be left out for an adapter, got {request.to}")
    folder = peft_folder(request.source)
    if request.base is None:
        raise CheckpointError("--base: must be given for an adapter: it is the checkpoint of the model beside it")
    base = find_checkpoint(request.base)
    described = describe(base, "cstool", request.params)
    beside = tokenizer_file(base, False)
    files = _carried(beside, request.target)
    _check_new(request.target, "dense", None, files)
    part, *others = described.parts(request.model_type)
    if others:
        raise CheckpointError(f"--base: must be one model of Hugging Face, got {1 + len(others)}: {base}")
    heads = read_peft_heads(folder, part)
    check_base(base, described, heads)
    with CstoolSource(base) as weights:
        layers = read_peft(folder, part, weights)
    where = str(folder / ADAPTER_CONFIG)
    size_bytes = write_adapters(request.target, base, described, layers, where, progress, heads)
    for path, content in files.items():
        _write_new(path, content)
    count = _count(layers) + len(heads)
    return Converted(request.target, None, next(iter(files), None), "peft", "dense", size_bytes, count, {}, ())


def _to_peft(request: Request, source_format: str) -> Converted:
    """Convert the adapters of a checkpoint to a folder of PEFT's."""
    if source_format != "cstool":
        raise CheckpointError(f"--to: must be dense, sparse or hf for {source_format}, got peft")
    whole = describe(request.source, "cstool", request.params)
    layers, base_name, rates = read_adapters(request.source, whole)
    check_free(request.target)
    part, *others = whole.of_policy(request.params is None).parts(request.model_type)
    if others:
        rule = f"must be one model of Hugging Face, got {1 + len(others)}"
        raise CheckpointError(f"{request.source}: {rule}")
    heads = read_heads(request.source, whole)
    size_bytes = write_peft(request.target, part, layers, request.base_name or base_name, heads)
    notes = [f"lora_dropout is {rates[0]:g}, of the first of several rates"] if len(rates) > 1 else []
    config = request.target / ADAPTER_CONFIG
    count = _count(layers) + len(heads)
    return Converted(request.target, config, None, "cstool", "peft", size_bytes, count, {}, tuple(notes))


def _count(layers: Mapping[str, Adapter]) -> int:
    """Number of the tensors of adapters."""
    return sum(2 if each.magnitude is None else 3 for each in layers.values())


def _check_whole(path: Path) -> None:
    """Check that a checkpoint is of a whole model, not of adapters, or raise CheckpointError."""
    with CheckpointReader(path) as reader:
        if ADAPTERS in reader.values():
            raise CheckpointError(f"{path}: must be a whole model, got adapters", f"{FOLD}; --to peft writes them")


def _format_of(path: Path) -> str:
    """Return the format of a source; cstool's by default, whose reader then reports the error."""
    if path.is_dir() or path.suffix in (".safetensors", ".json"):
        return "hf"
    if path.suffix == ".gguf" or is_gguf(path):
        return "gguf"
    return "vendor" if is_vendor_checkpoint(path) else "cstool"


def _open(path: Path, source_format: str, described: Described | None) -> Source:
    if source_format == "cstool":
        return CstoolSource(path)
    assert described is not None
    values = {"__metadata__": [_metadata(described)]}
    if source_format == "vendor":
        return VendorSource(path, described.model, described.graph, values)
    if source_format == "gguf":
        _, model = described.as_hf()
        return GgufSource(path, model, described.graph, values)
    first, *others = described.parts()
    if others:
        return HfPartsSource(path, (first, *others), values)
    return HfSource(path, first.family, first.model, first.graph, values)


def _metadata(described: Described) -> dict[str, Any]:
    return {"version": cstool.__version__, "model_name": described.model.name, "params": described.document}


def _config_path(target: Path, to: str, described: Described | None) -> Path | None:
    """Path for the description of the model: beside a checkpoint only if no params file has it.

    None where there are two, each beside its encoder.
    """
    if to == "hf":
        is_one = described is None or not isinstance(described.model, DprParams)
        return target / CONFIG_NAME if is_one else None
    # A folder such as "." or "/", which is refused after this, has no suffix to replace.
    return target.parent / f"{target.stem}.yaml" if described is not None and described.is_new else None


def _carried(beside: Path | None, target: Path) -> dict[Path, bytes]:
    """Files of a tokenizer that go with a checkpoint, and their content, the tokenizers JSON file first."""
    if beside is None:
        return {}
    to = tokenizer_beside(target)
    others = {file_beside(to, name): path for name, path in files_beside(beside).items()}
    return {path: source.read_bytes() for path, source in ({to: beside} | others).items()}


def _check_new(target: Path, to: str, config: Path | None, tokenizer: Iterable[Path]) -> None:
    """Check before any work that nothing stands where the result goes."""
    if to == "hf":
        check_free(target)
        return
    for what, path in (("Checkpoint", target), ("Config", config), *(("Tokenizer", path) for path in tokenizer)):
        if path is not None and os.path.lexists(path):
            raise CheckpointError(f"{what} at '{path}' already exists", "delete it or choose another name")


def _write_new(path: Path, content: bytes) -> None:
    """Write a file beside the checkpoint, which is complete by then, or raise CheckpointError."""
    try:
        with open(path, "xb") as file:
            file.write(content)
    except OSError as error:
        if not isinstance(error, FileExistsError):
            path.unlink(missing_ok=True)  # a part of it, where the disk is full
        raise CheckpointError(
            f"{path}: must be writable, got: {error.strerror}", "the checkpoint itself is complete"
        ) from error
