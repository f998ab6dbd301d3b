"""MemoryX in a file, for tests: params that ask for it, and what can happen to the file."""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cstool.training.machine import memoryx_store
from cstool.training.run.result import RunResult
from cstool.training.store import CommittedStore, block_file
from tests.end_to_end.runs import gpt_params, run_file

IN_FILE: dict[str, Any] = {"init__memoryx": {"store": "file", "memory": "32MiB"}}
NEVER_SAVED = {"init__checkpoint": {"steps": 0}}
EXPERTS = {"init__model__moe": {"num_experts": 24, "top_k": 1}, "init__model__filter_size": 16}
"""of which batches leave some alone"""
BIAS = "model.transformer_decoder.norm.bias"


def small_params(folder: Path, data: Path, **changes: Any) -> Path:
    """Write the params of a GPT with two grains to a batch, whose artifacts are kept beside the data."""
    loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(data), "batch_size": 8, "shuffle": True}
    small = {
        "init__backend": {"compile_dir": str(data.parent / "cached_compile")},
        "fit": {"train_dataloader": loader, "val_dataloader": loader},
    }
    return gpt_params(folder, data, **(small | changes))


def run_small(file: Path, **options: Any) -> RunResult:
    """Run such a file in this process, without the compiler's longer considerations."""
    return run_file(file, execution_mode="weight_streaming", **options)


def go_past_the_page_cache(change: Callable[[object, str, object], None] = setattr) -> None:
    """Have files of small models read and written as those of large ones, from a page on."""
    change(memoryx_store, "CACHED_SHARE", 0.0)
    change(block_file, "DIRECT_BYTES", block_file.PAGE_BYTES)


def flip_a_bit(path: Path, name: str = BIAS, *, older: bool = False) -> str:
    """Change a bit of a tensor of a commit, and return what is to be said of it."""
    with CommittedStore(path, older=older) as reader:
        extent = reader.record.arrays[name][0]
        place = reader._places[name][extent.slot]
    row_bytes = place.nbytes // place.shape[0]
    content = bytearray(path.read_bytes())
    first, last = (place.offset + row * row_bytes for row in (extent.start, extent.stop))
    content[first] ^= 1
    path.write_bytes(content)
    found = zlib.crc32(content[first:last])
    return (
        f"TMP/model_dir/{path.name}: {name} is damaged: the checksum of rows {extent.start} to {extent.stop} must be "
        f"{extent.crc32:08x}, got {found:08x}"
    )
