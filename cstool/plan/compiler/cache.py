"""compile_dir: artifacts under the name of their input, so that the same input is compiled once."""

import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import cstool
from cstool.foundation.errors import ArtifactError
from cstool.model.ir import SCHEMA, Artifact, plain_data, plain_digest, read_artifact, write_artifact
from cstool.model.params import ModelParams
from cstool.plan.compiler.program import Program

log = logging.getLogger("cstool")

NAME_DIGITS = 19
"""digits of the number in the name of a file, a decimal one, as on the real machine"""
SPARSE_DIGITS = 16
"""digits of the digest of the non-zeros, beside the number of zeros"""
MOST_COMPARED = 50
"""artifacts that are looked at to explain why there is none"""
MOST_NAMED = 3
"""changes of a group of keys that are named; the rest is counted"""
_ANOTHER_FOLDER = "name another folder with --compile_dir"
_FIRST = ("name", "num_hidden_layers", "hidden_size", "num_heads", "filter_size", "vocab_size")


def compile_inputs(model: ModelParams, program: Program) -> Mapping[str, str]:
    """Return all inputs of an artifact: dotted key -> short value.

    Args:
        model: section of the params, for keys that people recognise
        program: the graph, for the length of samples that was asked for, whose digest counts; the target and options;
            where it is sparse, the digest of the non-zeros
    """
    graph, request = program.graph, program.request
    sparse = {str(number): dict(found) for number, found in enumerate(program.nonzeros) if found}
    asked = {field.name: getattr(request, field.name) for field in fields(request) if field.name != "system"}
    asked = {"optimizer_states" if name == "optimizer" else name: value for name, value in asked.items()}
    asked["optimizer_states"] = request.optimizer.artifact_key
    return {
        "schema": str(SCHEMA),
        "cstool": cstool.__version__,
        **_flat("system", plain_data(request.system)),
        "tokens": str(program.tokens),
        **{k: v for name, value in asked.items() for k, v in _flat(name, "auto" if value is None else value).items()},
        **_flat("model", model.dump()),
        **({"sparse": f"{program.zeros:,} zeros, {plain_digest(sparse)[:SPARSE_DIGITS]}"} if sparse else {}),
        "graph": plain_digest(plain_data(graph)),
    }


def artifact_path(compile_dir: Path, inputs: Mapping[str, str]) -> Path:
    """File of the artifact of an input: `cs_<19 digits>.json`."""
    number = int(plain_digest(dict(inputs)), 16) % 10**NAME_DIGITS
    return compile_dir / f"cs_{number:0{NAME_DIGITS}}.json"


def find_cached(compile_dir: Path, inputs: Mapping[str, str]) -> Artifact | None:
    """Return the artifact of an input, None if there is none. One that cannot be used is logged, and counts as none."""
    path = artifact_path(compile_dir, inputs)
    if not os.path.lexists(path):
        return None
    try:
        artifact = read_artifact(path)
    except ArtifactError as error:
        log.warning("%s; it is compiled again", error.message)
        return None
    if dict(artifact.inputs) != dict(inputs):
        log.warning("%s: must be the artifact of this input, got another's; it is compiled again", path)
        return None
    return artifact


def keep_artifact(compile_dir: Path, artifact: Artifact) -> Path:
    """Write an artifact under the name of its input, and return its path. Concurrent writers write the same.

    Raises:
        ArtifactError: the folder cannot be made or written
    """
    path = artifact_path(compile_dir, artifact.inputs)
    try:
        compile_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        rule = f"compile_dir: must be a folder that can be written, got {compile_dir}: {error.strerror}"
        raise ArtifactError(rule, _ANOTHER_FOLDER) from error
    try:
        write_artifact(artifact, path)
    except ArtifactError as error:
        raise ArtifactError(error.message, _ANOTHER_FOLDER) from error
    return path


def explain_miss(compile_dir: Path, inputs: Mapping[str, str]) -> str | None:
    """Return in one line the differences from the nearest artifact that is kept; None if there is none to compare.

    The nearest is the artifact with the fewest changes. Of many artifacts, the latest are compared.
    """
    found = [(changes, name) for name, old in _kept_inputs(compile_dir) if (changes := _changes(old, inputs))]
    if not found:
        return None
    changes, name = min(found, key=lambda item: (len(item[0]), item[1]))
    # Single keys, then groups: "model: hidden_size 768 -> 1024, num_heads 12 -> 16".
    texts = [_change(key, change) for key, change in changes.items() if "." not in key]
    if system := changes.get("system.name"):
        texts = [_change("system", system), *texts, *_groups(changes, ("model",))]
    else:
        texts += _groups(changes, ("system", "model"))
    return f"Not compiled before. Since {name} was, there changed: {'; '.join(texts)}"


def _kept_inputs(compile_dir: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield file names and inputs of kept artifacts; files that cannot be read are left out."""
    try:
        paths = sorted(compile_dir.glob("cs_*.json"), key=lambda path: (-path.lstat().st_mtime_ns, path.name))
    except OSError:
        return
    for path in paths[:MOST_COMPARED]:
        try:
            inputs = json.loads(path.read_bytes())["inputs"]
            yield path.name, {str(key): str(value) for key, value in inputs.items()}
        except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
            continue


def _changes(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the keys that differ, and how, without ones that mostly follow from others (graph, initial weights)."""
    keys = [*new, *(key for key in old if key not in new)]
    changes = {key: (old.get(key, "none"), new.get(key, "none")) for key in keys if old.get(key) != new.get(key)}
    if "system.name" in changes:
        changes = {key: change for key, change in changes.items() if key == "system.name" or key[:7] != "system."}
    causes = {key for key in changes if key == "tokens" or (key.startswith("model.") and "initializer." not in key)}
    if causes:
        return {key: change for key, change in changes.items() if "initializer." not in key and key != "graph"}
    if any(key.startswith("model.") for key in changes):
        changes.pop("graph", None)
    return changes


def _groups(changes: Mapping[str, tuple[str, str]], names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        keys = [key.removeprefix(f"{name}.") for key in changes if key.startswith(f"{name}.")]
        keys.sort(key=lambda key: (_FIRST.index(key) if key in _FIRST else len(_FIRST), key))
        texts = [_change(key, changes[f"{name}.{key}"]) for key in keys[:MOST_NAMED]]
        more = f" and {len(keys) - MOST_NAMED} more" if len(keys) > MOST_NAMED else ""
        if keys:
            yield f"{name}: {', '.join(texts)}{more}"


def _change(key: str, change: tuple[str, str]) -> str:
    old, new = (value[:8] if key == "graph" else value for value in change)
    return f"{key} {old} -> {new}"


def _flat(prefix: str, value: Any) -> dict[str, str]:
    """Return nested data as dotted keys and texts."""
    if isinstance(value, Mapping):
        return {k: v for key, item in value.items() for k, v in _flat(f"{prefix}.{key}", item).items()}
    return {prefix: value if isinstance(value, str) else json.dumps(value)}
