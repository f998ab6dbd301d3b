"""Write converted weights as a folder that Hugging Face's library loads: safetensors files and a config.json."""

import contextlib
import errno
import json
import math
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from cstool.convert.hf_config import config_of
from cstool.convert.hf_family import Family, HfPart
from cstool.convert.hf_names import Place, places_of, tensor_shapes, with_prefix
from cstool.convert.hf_tokenizer import HfTokenizer
from cstool.convert.safetensors_reader import INDEX_NAME, SINGLE_NAME
from cstool.convert.safetensors_writer import FLOAT32_BYTES, SafetensorsWriter
from cstool.convert.source import Source
from cstool.foundation.atomic_file import sync_folder
from cstool.foundation.errors import CheckpointError
from cstool.training.store import Progress

CONFIG_NAME = "config.json"
_ROOM = "free some space or choose another folder"


def check_free(folder: Path) -> None:
    """Check that a folder is new or empty, or raise CheckpointError."""
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        got = "got one with files in it" if folder.is_dir() else "got a file"
        raise CheckpointError(f"{folder}: must be a new or an empty folder, {got}", "delete it or choose another name")


def write_hf(
    source: Source,
    folder: Path,
    parts: Sequence[tuple[HfPart, HfTokenizer | None]],
    shard_bytes: int | None,
    progress: Progress,
) -> int:
    """Write a model, streaming range by range, and return the bytes of its tensors. The folder is whole, or not there.

    Args:
        source: with the weights of all parts
        folder: new, or empty
        parts: the model there, or several in folders of their own; each with the tokenizer of its training
            data, None leaves it out
        shard_bytes: most bytes of the tensors of one file, if a tensor has no more; None for one file
        progress: of the bytes

    Raises:
        CheckpointError: it cannot be written; nothing of it is left
    """
    check_free(folder)
    places = [places_of(part.family, part.model, part.graph) for part, _ in parts]
    shapes = [_shapes(part, of_part) for (part, _), of_part in zip(parts, places, strict=True)]
    total_bytes = sum(_bytes_of(shape) for of_part in shapes for shape in of_part.values())
    with new_folder(folder, total_bytes, "a model") as temporary:
        done_bytes = 0
        for (part, tokenizer), of_part, of_shapes in zip(parts, places, shapes, strict=True):
            own = temporary / part.folder
            own.mkdir(exist_ok=True)
            shards = _shards(of_shapes, shard_bytes)
            done_bytes = _write_weights(
                source, own, part.family, of_part, shards, lambda done: progress(done, total_bytes), done_bytes
            )
            files, ids = ({}, {}) if tokenizer is None else (tokenizer.files, tokenizer.ids)
            write_json(own / CONFIG_NAME, {**config_of(part.family, part.model), **ids})
            for name, text in files.items():
                _write_text(own / name, text)
            if own != temporary:
                sync_folder(own)
    return total_bytes


@contextlib.contextmanager
def new_folder(folder: Path, total_bytes: int, what: str) -> Iterator[Path]:
    """Make a folder under another name, which gets its own at the end; where that fails, nothing of it is left.

    Args:
        folder: new, or empty
        total_bytes: of its files
        what: its contents, as messages name them

    Raises:
        CheckpointError: it cannot be written
    """
    temporary = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}.tmp")
    try:
        free_bytes = shutil.disk_usage(folder.parent).free
        if free_bytes < total_bytes:
            raise CheckpointError(
                f"{folder}: {total_bytes} bytes must be writable here, got {free_bytes} that are free",
                _ROOM,
            )
        temporary.mkdir()
        yield temporary
        sync_folder(temporary)
        # Where something came there in the meantime, a folder that is not empty or a file, this fails.
        os.rename(temporary, folder)
        sync_folder(folder.parent)
    except OSError as error:
        raise CheckpointError(
            f"{folder}: {what} of {total_bytes} bytes must be writable here, got: {error.strerror or error}",
            "create the folder that it goes to first" if error.errno == errno.ENOENT else _ROOM,
        ) from error
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(temporary)


def _write_weights(
    source: Source,
    folder: Path,
    family: Family,
    places: Mapping[str, Place],
    shards: Mapping[str, Mapping[str, tuple[int, ...]]],
    progress: Callable[[int], object],
    done_bytes: int,
) -> int:
    """Write the files of a part, and their index if they are several.

    Args:
        places: of its weights, by their names here
        shards: by file the shapes of its tensors
        progress: of the bytes of all parts
        done_bytes: of the parts before it

    Returns:
        the same with this part
    """
    with ExitStack() as stack:
        writers = {name: stack.enter_context(SafetensorsWriter(folder / name, of)) for name, of in shards.items()}
        owner = {tensor: writers[name] for name, of in shards.items() for tensor in of}
        for weight, place in places.items():
            tensor, start = with_prefix(family, place.tensor), 0
            writer = owner[tensor]
            for rows in source.rows(f"model.{weight}", place.head_width):
                if place.transposed:
                    writer.write_columns(tensor, place.start + start, rows.T)
                else:
                    there, done = place.to_there(rows), 0
                    for first, count in place.runs(start, start + len(rows)):
                        writer.write_rows(tensor, first, there[done : done + count])
                        done += count
                start += len(rows)
                done_bytes += rows.nbytes
                progress(done_bytes)
    if len(shards) > 1:
        weight_map = {tensor: name for name, of in shards.items() for tensor in of}
        size_bytes = sum(_bytes_of(shape) for of in shards.values() for shape in of.values())
        write_json(folder / INDEX_NAME, {"metadata": {"total_size": size_bytes}, "weight_map": weight_map})
    return done_bytes


def _shapes(part: HfPart, places: Mapping[str, Place]) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors of a part by their whole names."""
    found = tensor_shapes(part.family, part.model, places, part.graph)
    return {with_prefix(part.family, tensor): shape for tensor, shape in found.items()}


def _bytes_of(shape: tuple[int, ...]) -> int:
    return math.prod(shape) * FLOAT32_BYTES


def _shards(shapes: Mapping[str, tuple[int, ...]], shard_bytes: int | None) -> dict[str, dict[str, tuple[int, ...]]]:
    """Return the files and their tensors, in order; another file begins where the next tensor does not fit."""
    found: list[dict[str, tuple[int, ...]]] = [{}]
    taken_bytes = 0
    for tensor, shape in shapes.items():
        need_bytes = _bytes_of(shape)
        if shard_bytes is not None and found[-1] and taken_bytes + need_bytes > shard_bytes:
            found.append({})
            taken_bytes = 0
        found[-1][tensor] = shape
        taken_bytes += need_bytes
    if len(found) == 1:
        return {SINGLE_NAME: found[0]}
    return {f"model-{n:05}-of-{len(found):05}.safetensors": shard for n, shard in enumerate(found, start=1)}


def write_json(path: Path, document: Mapping[str, object]) -> None:
    """Write a JSON file, durably, or raise OSError."""
    _write_text(path, json.dumps(document, indent=2) + "\n")


def _write_text(path: Path, text: str) -> None:
    with open(path, "x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
