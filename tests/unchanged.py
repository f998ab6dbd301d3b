"""Digests of what must stay as it is while code is rearranged: weights and losses of runs, artifacts, estimates.

    python -m tests.unchanged record before.json
    python -m tests.unchanged compare before.json
    python -m tests.unchanged compare before.json --code ../another_checkout --only "rigl"

All of it is typed as commands, so any state of the project can be asked, by `--code`. Digests are those of one machine:
record and compare on the same one. `compare` names what differs, and what either side lacks, and ends with 1 if there
is anything.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import yaml

from tests.end_to_end.runs import SEQUENCE, write_text
from tests.models import FAMILIES, SPARSITIES

PROJECT = Path(__file__).parents[1]
STEPS, VOCABULARY, SAMPLES, BATCH = 6, 48, 64, 16
NOT_COMPARED = ("__cstool_version__", "__digest__", "__metadata__.__metadata__")
"""of a checkpoint: it has the version, paths and the date"""
OPTIMIZERS: Mapping[str, Mapping[str, Any]] = {
    "SGD": {"SGD": {"learning_rate": 0.1}},
    "momentum": {"SGD": {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.01}},
    "nesterov": {"SGD": {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True}},
    "Adam": {"Adam": {"learning_rate": 0.01, "weight_decay": 0.1}},
    "AdamW": {"AdamW": {"learning_rate": 0.01, "weight_decay": 0.1, "betas": [0.9, 0.95]}},
    "Lion": {"Lion": {"learning_rate": 0.001, "weight_decay": 0.1}},
    "Adafactor": {"Adafactor": {"learning_rate": 0.01, "weight_decay": 0.1}},
}
IN_FILE = {"memoryx": {"store": "file", "memory": "32MiB"}}
AGAIN = {"activation_checkpointing": "always"}
DROPOUT = {"dropout_rate": 0.1, "attention_dropout_rate": 0.1}
# Where sparse kernels pay is measured anew when a source changes, and bits follow it: so there is no choice. Nor is one
# of providers: all products of these models are too small for oneDNN.
ALWAYS = "--sparse_kernels always"


@dataclass(frozen=True)
class Run:
    """A run that is asked for its losses and its last checkpoint.

    Args:
        init: keys of `trainer.init`
        flags: of the command
        model: keys of its section
        stops: steps after which it is stopped, to go on with another command
    """

    init: Mapping[str, Any] = field(default_factory=dict)
    flags: str = ""
    model: Mapping[str, Any] = field(default_factory=dict)
    stops: Sequence[int] = ()


def runs() -> Iterator[tuple[str, Run]]:
    """Yield the runs by name: every family, sparse rule, optimizer and store, and what must not change their bits."""
    for name, model in FAMILIES.items():
        yield f"{name}", Run(flags="--lanes 2", model={**model, **DROPOUT})
    for name, sparsity in SPARSITIES.items():
        for store, where in (("ram", {}), ("file", IN_FILE)):
            yield f"{name}, {store}, stopped twice", Run({"sparsity": sparsity, **where}, ALWAYS, stops=(2, 5))
        again = Run({"sparsity": sparsity, **AGAIN}, f"{ALWAYS} --num_csx 4 --lanes 2", FAMILIES["llama"])
        yield f"{name}, llama, again, 4 systems", again
    for name, optimizer in OPTIMIZERS.items():
        clipped = {"precision": {"max_gradient_norm": 1.0}, **IN_FILE}
        for clip, more in (("clipped", clipped), ("not clipped", {"precision": {}})):
            yield f"{name}, {clip}", Run({"optimizer": optimizer, **more}, "--num_csx 2")
    for lanes, systems in ((1, 1), (2, 4), (3, 2)):
        yield f"{lanes} lanes, {systems} systems", Run(AGAIN, f"--lanes {lanes} --num_csx {systems}", DROPOUT)
    yield "never sparse kernels", Run({"sparsity": SPARSITIES["static"]}, "--sparse_kernels never")
    yield "pipelined", Run(flags="--execution_mode pipelined")
    yield "evaluated between", Run({"loop": {"max_steps": STEPS, "eval_frequency": 2, "eval_steps": 1}})


def params_of(case: Run, folder: Path, data: Path) -> dict[str, Any]:
    """Return the params file of a run as plain data."""
    model = {"name": "gpt2", "vocab_size": VOCABULARY, "hidden_size": 32, "num_heads": 4, "num_hidden_layers": 2}
    model |= {"filter_size": 64, "max_position_embeddings": SEQUENCE, **dict.fromkeys(DROPOUT, 0.0)}
    model |= {key: value for key, value in case.model.items() if key != "hidden_size"}
    loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(data), "batch_size": BATCH, "shuffle": True}
    init = {"model": model, "optimizer": OPTIMIZERS["AdamW"], "precision": {"max_gradient_norm": 1.0}, "seed": 7}
    init |= {"loop": {"max_steps": STEPS}, "checkpoint": {"steps": STEPS}, "logging": {"log_steps": 1}}
    init |= {"model_dir": str(folder / "model_dir"), **case.init}
    return {"trainer": {"init": init, "fit": {"train_dataloader": loader, "val_dataloader": loader}}}


def digest_of(checkpoint: Path) -> str:
    """Return a digest of the tensors, links and values of a checkpoint."""
    found = hashlib.sha256()

    def add(name: str, thing: h5py.Group | h5py.Dataset) -> None:
        attributes = {key: str(value) for key, value in thing.attrs.items() if key not in NOT_COMPARED}
        found.update(json.dumps([name, attributes], sort_keys=True).encode())
        if isinstance(thing, h5py.Dataset):
            found.update(f"{thing.dtype} {thing.shape}".encode() + thing[()].tobytes())

    with h5py.File(checkpoint) as file:
        add("", file)
        file.visititems(add)
    return found.hexdigest()[:16]


class Project:
    """A state of the project that is asked.

    Args:
        code: its folder
        scratch: a folder for what its commands write
    """

    def __init__(self, code: Path, scratch: Path) -> None:
        self.code, self.scratch = code.resolve(), scratch
        self.data = write_text(scratch / "data", SAMPLES, vocab=VOCABULARY)
        self.environment = {**os.environ, "PYTHONPATH": str(self.code), "PYTHONSAFEPATH": "1"}

    def type(self, *arguments: str) -> str:
        """Run a command, and return what it prints on stdout.

        Raises:
            RuntimeError: it fails
        """
        where = {"cwd": self.scratch, "env": self.environment, "check": False}
        done = subprocess.run([sys.executable, "-m", "cstool", *arguments], capture_output=True, text=True, **where)
        if done.returncode:
            raise RuntimeError(f"cstool {' '.join(arguments)}\n{done.stdout}{done.stderr}")
        return done.stdout

    def run(self, case: Run) -> str:
        """Return the losses that a run prints, and the digest of its last checkpoint."""
        folder = Path(tempfile.mkdtemp(dir=self.scratch))
        file = folder / "params.yaml"
        file.write_text(yaml.safe_dump(params_of(case, folder, self.data)), encoding="utf-8")
        printed = "".join(
            self.type("run", "-p", str(file), "--mode", "train_and_eval", "--max_steps", f"{last}", *case.flags.split())
            for last in (*case.stops, STEPS)
        )
        losses = re.findall(r"[Ll]oss=([\d.]+)", printed)
        if len(losses) < STEPS:
            raise RuntimeError(f"{len(losses)} losses in what is printed:\n{printed}")
        return " ".join([*losses, digest_of(folder / "model_dir" / f"checkpoint_{STEPS}.mdl")])

    def compiled(self, name: str, *flags: str) -> str:
        """Return the digest of an artifact."""
        file = Path(tempfile.mkdtemp(dir=self.scratch)) / "artifact.json"
        self.type("compile", "-p", str(self.code / "params" / f"{name}.yaml"), "--out", str(file), *flags)
        return hashlib.sha256(file.read_bytes()).hexdigest()[:16]

    def estimated(self, *flags: str) -> str:
        """Return the digest of an estimate."""
        return hashlib.sha256(self.type("estimate", *flags, "--json").encode()).hexdigest()[:16]

    def questions(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield everything that is asked, by name."""
        for name, case in runs():
            yield f"run: {name}", lambda case=case: self.run(case)
        for file in sorted((self.code / "params").glob("*.yaml")):
            for flags in ((), ("--num_csx", "2", "--system", "cs3"), ("--recompute", "needed")):
                if file.stem == "gpt_120t" and "cs3" in flags:
                    continue  # its MemoryX is too small
                text = " ".join(["compile:", file.stem, *flags])
                yield text, lambda name=file.stem, flags=flags: self.compiled(name, *flags)
            path = str(file)
            yield f"estimate: {file.stem}", lambda path=path: self.estimated("-p", path, "--num_csx", "1,2")
        yield "estimate: published results", lambda: self.estimated("--validate")

    def answers(self, only: str) -> dict[str, str]:
        """Return the digests of what has certain words in its name."""
        asked = [(name, question) for name, question in self.questions() if only in name]
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            found = [(name, threads.submit(_answer, question)) for name, question in asked]
            return {name: answer.result() for name, answer in found}


def _answer(question: Callable[[], str]) -> str:
    try:
        return question()
    except RuntimeError as error:
        return f"failed: {error}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Record, or compare with what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=["record", "compare"])
    parser.add_argument("file", type=Path, help="where the digests are")
    parser.add_argument("--code", type=Path, default=PROJECT, help="a checkout of the project, this one if not said")
    parser.add_argument("--only", default="", help="what has these words in its name")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="unchanged.") as scratch:
        found = Project(asked.code, Path(scratch)).answers(asked.only)
    failed = [name for name, answer in found.items() if answer.startswith("failed")]
    for name in failed:
        print(f"{name}: {found[name]}")
    if asked.verb == "record":
        asked.file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"{asked.file}: {len(found)} answers, {len(failed)} failed")
        return bool(failed)
    known = {name: a for name, a in json.loads(asked.file.read_text(encoding="utf-8")).items() if asked.only in name}
    differing = [name for name in sorted(known) if known[name] != found.get(name)]
    for name in differing:
        print(f"{name}: {known[name]} -> {found.get(name, 'not asked')}")
    new = len(found.keys() - known.keys())
    print(f"{len(known)} recorded, {len(found)} asked, {new} of them new, {len(differing)} differ")
    return bool(differing or failed)


if __name__ == "__main__":
    sys.exit(main())
