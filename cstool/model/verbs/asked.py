"""The inputs of a verb, checked: params from a file or loaded, overrides, arguments, the file of a trace."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cstool.foundation.errors import CstoolError, ParamsError, TraceError

if TYPE_CHECKING:
    from cstool.model.params import Params

KEYS = {
    "model_dir": "trainer.init.model_dir",
    "num_csx": "trainer.init.backend.cluster_config.num_csx",
    "compile_dir": "trainer.init.backend.compile_dir",
    "compile_only": "trainer.init.backend.compile_only",
    "validate_only": "trainer.init.backend.validate_only",
    "max_steps": "trainer.init.loop.max_steps",
    "num_steps": "trainer.init.loop.num_steps",
    "eval_steps": "trainer.init.loop.eval_steps",
    "seed": "trainer.init.seed",
    "frozen": "trainer.init.frozen",
    "lora": "trainer.init.lora",
    "precision": "trainer.init.precision.host",
    "memoryx": "trainer.init.memoryx.store",
    "memoryx_memory": "trainer.init.memoryx.memory",
    "memoryx_nodes": "trainer.init.memoryx.nodes",
    "logging": "trainer.init.logging.log_level",
    "disable_strict_checkpoint_loading": "trainer.init.checkpoint.disable_strict_checkpoint_loading",
    "num_workers_per_csx": "trainer.init.backend.cluster_config.num_workers_per_csx",
    "mount_dirs": "trainer.init.backend.cluster_config.mount_dirs",
    "python_paths": "trainer.init.backend.cluster_config.python_paths",
    "job_labels": "trainer.init.backend.cluster_config.job_labels",
    "disable_version_check": "trainer.init.backend.cluster_config.disable_version_check",
}
"""the key in the params file for each argument, and each flag; a key without an effect there is noted as such"""


def typed(prefix: str, **given: Any) -> dict[str, tuple[str, Any]]:
    """Return (prefix and name, value) by key of the params file, for given arguments: defaults never override a file.

    Paths are made absolute: they start from the working directory, not from the params file.
    """
    return {
        key: (prefix + name, str(value.absolute()) if isinstance(value, Path) else value)
        for name, key in KEYS.items()
        if (value := given.get(name)) is not None
    }


def load_trainers(
    file: Path, overrides: Sequence[str], flags: Mapping[str, tuple[str, Any]] | None = None
) -> tuple[Params, ...]:
    """Load all trainers of a params file; arguments and errors as of `load_all_params`."""
    from cstool.model.params import load_all_params

    return load_all_params(file, overrides=overrides, flags=flags or {})


def load_trainer(file: Path, overrides: Sequence[str], flags: Mapping[str, tuple[str, Any]]) -> Params:
    """Load a params file of one trainer; arguments and errors as of `load_params`."""
    from cstool.model.params import load_params

    return load_params(file, overrides=overrides, flags=flags)


def asked_params(
    params: str | Path | Params, overrides: Mapping[str, Any] | Sequence[str] | None, **given: Any
) -> Params:
    """Return the params of one trainer that a verb is asked for.

    Args:
        params: a file, or params that are loaded
        overrides: as for `load_params`; None for none
        given: arguments of the verb by name, None where they were left out

    Raises:
        ParamsError: the file breaks rules, or loaded params are to be changed
    """
    from cstool.model.params import Params, load_params

    flags = typed("", **given)
    if not isinstance(params, Params):
        return load_params(params, overrides=overrides or (), flags=flags)
    names = [*(["overrides"] if overrides else []), *(name for name, _ in flags.values())]
    if names:
        rule = "must go with a file, got params that are loaded"
        raise ParamsError([(f"{names[0]}: {rule}", "`load_params` takes overrides")])
    return params


def check_lanes(lanes: int | None) -> None:
    """Check a number of host threads.

    Raises:
        CstoolError: it is less than 1
    """
    if lanes is not None and lanes < 1:
        raise CstoolError(f"lanes: must be at least 1, got {lanes}", "None takes as many as there are cores")


def check_trace_file(path: Path) -> None:
    """Check that a trace can be written.

    Raises:
        TraceError: the name does not end in .json, or there is no folder for it that can be written
    """
    if path.suffix != ".json":
        raise TraceError(f"--trace: must end in .json, got {path}")
    if path.exists() and not path.is_file():
        raise TraceError(f"--trace: must be a file, got {'a folder' if path.is_dir() else 'what is none'}: {path}")
    import tempfile

    try:
        with tempfile.TemporaryFile(dir=Path(os.path.realpath(path)).parent):
            pass
    except OSError as error:
        raise TraceError(
            f"--trace: must be in a folder that can be written, got {path}: {error.strerror}",
            "create the folder first" if error.errno == errno.ENOENT else "choose another folder",
        ) from error


def check_traced(trainers: Sequence[Params], mode: str) -> None:
    """Check that a trace has an event to record: the training of one trainer.

    Raises:
        TraceError: there is not
    """
    if len(trainers) > 1:
        raise TraceError(
            f"--trace: must be for one trainer, got {len(trainers)} in {trainers[0].path}", "trace them apart"
        )
    for key in ("validate_only", "compile_only"):
        if getattr(trainers[0], key):
            raise TraceError(f"--trace: must be for a run, got {key}", "nothing runs with it")
    if mode in ("eval", "eval_all"):
        raise TraceError(f"--trace: must be for training, got --mode {mode}", "train_and_eval trains, too")
