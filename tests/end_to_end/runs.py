"""Small whole runs for tests: params files, data, and what came of a run."""

import copy
import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from cstool.foundation.progress import Silent
from cstool.model.graphs import SampleForm
from cstool.model.ir import Artifact, plain_digest
from cstool.model.params import Params, load_params
from cstool.model.system import load_system
from cstool.plan.compiler import compile_model
from cstool.plan.compiler.cache import compile_inputs
from cstool.plan.compiler.compile import make_program
from cstool.training.data import write_hdf5_text
from cstool.training.machine.data_sets import check_data
from cstool.training.run.result import RunResult
from cstool.training.run.run import run
from cstool.training.run.session import RunOrder
from cstool.training.store import CheckpointReader, SavedState, list_checkpoints

SEQUENCE = 128
_COMPILED: dict[str, Artifact] = {}
"""artifacts by the digest of all that they depend on"""
DROPOUT = {"init__model__dropout_rate": 0.1, "init__model__attention_dropout_rate": 0.1}
STEPS = 12
LONGER = {"init__loop": {"max_steps": STEPS}, "init__checkpoint": {"steps": STEPS}}
"""a run that is long enough to be struck on its way"""
STREAMED = "weight_streaming"
"""the mode that is compiled here: runs have the same bits in any (`test_execution_modes`), and to place a pipeline
takes longer than a small run"""
TEXT = "abcdefghijklmnopqrstuvwxyz. " * 640
"""what the fixture `trained` has learnt"""


def write_text(folder: Path, samples: int, *, seed: int = 0, vocab: int = 64) -> Path:
    """Write random text in which a token has four possible successors; a few labels do not count."""
    rng = np.random.default_rng(seed)
    tokens = np.cumsum(rng.integers(0, 4, (samples, SEQUENCE + 1)), axis=1) % vocab
    mask = rng.random((samples, SEQUENCE)) < 0.95
    folder.mkdir(parents=True)
    fields = np.stack([tokens[:, :-1], mask, tokens[:, 1:]], axis=1).astype(np.int32)
    write_hdf5_text(folder / "part.h5", [fields], samples, SEQUENCE)
    return folder


GPT = """
init:
  model: {name: gpt2, vocab_size: 64, hidden_size: 32, num_heads: 2, num_hidden_layers: 2, filter_size: 64,
          max_position_embeddings: 128, dropout_rate: 0.0, attention_dropout_rate: 0.0}
  optimizer: {AdamW: {betas: [0.9, 0.95], eps: 1.0e-8, weight_decay: 0.1, learning_rate: 0.01}}
  precision: {max_gradient_norm: 1.0}
  loop: {max_steps: 4}
  checkpoint: {steps: 4}
  logging: {log_steps: 1}
"""


def gpt_params(folder: Path, data: Path, **changes: Any) -> Path:
    """Write the params of a small GPT with 12 grains to a batch; `changes` are dotted keys with `__` for the dots."""
    loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(data), "batch_size": 48}
    trainer: dict[str, Any] = yaml.safe_load(GPT)
    trainer["init"]["model_dir"] = str(folder / "model_dir")
    trainer["fit"] = {"train_dataloader": {**loader, "shuffle": True}, "val_dataloader": loader}
    for key, value in changes.items():
        *path, last = key.split("__")
        section = trainer
        for part in path:
            section = section.setdefault(part, {})
        # A copy: another key may change what is in it.
        section[last] = copy.deepcopy(value)
    return write_trainer(folder / "params.yaml", **trainer)


def write_trainer(file: Path, init: dict[str, Any], fit: dict[str, Any] | None = None, **others: Any) -> Path:
    """Write a params file with these sections; return it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    sections = {"init": init, **({} if fit is None else {"fit": fit}), **others}
    file.write_text(yaml.safe_dump({"trainer": sections}, sort_keys=False))
    return file


def run_file(
    file: Path,
    *,
    mode: str = "train",
    lanes: int | None = 1,
    execution_mode: str = STREAMED,
    sparse_kernels: str = "always",
    states: str | None = None,
    trace: Path | None = None,
    **flags: Any,
) -> RunResult:
    """Run a params file in this process; flags are dotted keys with `__` for the dots."""
    typed = {key.replace("__", "."): (f"--{key}", value) for key, value in flags.items()}
    params = load_params(file, flags=typed)
    return run(
        params,
        compiled(params, mode, execution_mode),
        RunOrder(mode, load_checkpoint_states=states, lanes=lanes, sparse_kernels=sparse_kernels, trace=trace),
        Silent(),
    )


def compiled(params: Params, mode: str, execution_mode: str = STREAMED) -> Artifact:
    """Compile for the data of a run, as `cstool run` does; the same input is compiled once."""
    form = SampleForm.of(check_data(params, mode))
    program = make_program(params, load_system("cs2"), execution_mode=execution_mode, recompute="needed", form=form)
    inputs = compile_inputs(params.model, program)
    key = plain_digest(dict(inputs))
    if key not in _COMPILED:
        _COMPILED[key] = compile_model(params, program.request.system, execution_mode=execution_mode, form=form)
    return _COMPILED[key]


def digest(checkpoint: Path) -> str:
    """Return a digest of all tensors of a checkpoint, and of where the run is; a file that stays is read once."""
    found = checkpoint.stat()
    return _digest(checkpoint, found.st_ino, found.st_mtime_ns, found.st_size)


@functools.cache
def _digest(checkpoint: Path, *_identity: int) -> str:
    with CheckpointReader(checkpoint) as reader:
        return digest_of(reader)


def saved_tensors(checkpoint: Path, prefix: str = "") -> dict[str, bytes]:
    """Return the tensors of a checkpoint whose names begin so, by the rest of their names."""
    with CheckpointReader(checkpoint) as reader:
        names = [name for name in reader.tensor_names() if name.startswith(prefix)]
        return {name.removeprefix(prefix): reader.read(name).tobytes() for name in names}


def digest_of(reader: SavedState) -> str:
    """Return a digest of all tensors and links of a saved state, and of where the run is."""
    found = hashlib.sha256()
    for name in sorted(reader.tensor_names()):
        found.update(name.encode())
        found.update(reader.read(name).tobytes())
    keys = reader.keys()
    links = sorted((key, link) for key in keys if (link := reader.link_of(key)) is not None)
    found.update(str((links, reader.value("global_step"), reader.value("dataloader"))).encode())
    return found.hexdigest()


def bits(result: RunResult) -> tuple[list[str], str]:
    """Return the losses of a run to the last bit, and the digest of its last checkpoint."""
    return [loss.hex() for loss in result.losses], digest(Path(result.checkpoints[-1]))


def latest_bits(model_dir: Path) -> str:
    return digest(list_checkpoints(model_dir)[-1].path)


def check_parts(cstool: Callable[..., Any], straight: Path, parted: Path, stop: int, last: int, *typed: object) -> None:
    """Check that a run that is stopped, and goes on on two systems, has the bits of a straight one.

    Args:
        straight: its params file, NAME.yaml, whose model_dir is NAME
        parted: that of the run that is stopped, likewise
        stop: the step after which it is
        last: the last step of both
        typed: further flags with which it goes on
    """
    for file, steps, flags in ((straight, last, ()), (parted, stop, ()), (parted, last, ("--num_csx", 2, *typed))):
        assert cstool("run", "-p", file, "--max_steps", steps, *flags).code == 0
    assert latest_bits(straight.with_suffix("")) == latest_bits(parted.with_suffix(""))
