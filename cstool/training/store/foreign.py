"""Models of Hugging Face's libraries or of llama.cpp, and adapters, given in the place of a checkpoint."""

import json
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

from cstool.foundation.errors import CheckpointError

_ADAPTER = "adapter_config.json"
_MODELS = ("config.json", "model.safetensors", "model.safetensors.index.json")
_OWNERS = {".safetensors": "Hugging Face", ".gguf": "llama.cpp"}


def check_not_foreign(path: Path) -> None:
    """Check that a path is no model or adapter of another library's, or raise CheckpointError that says the way on."""
    check_no_adapter(path)
    names = (path / name for name in _MODELS) if path.is_dir() else (path,) if path.suffix in _OWNERS else ()
    if any(name.is_file() for name in names):
        owner = _OWNERS.get(path.suffix, "Hugging Face")
        target = f"{path.absolute().stem if path.suffix in _OWNERS else path.absolute().name}.mdl"
        raise CheckpointError(
            f"{path}: must be a checkpoint of cstool, got a model of {owner}",
            f"cstool checkpoint convert {shlex.quote(str(path))} {shlex.quote(target)} makes one of it",
        )


def check_no_adapter(path: Path) -> None:
    """Check that a folder, or a file of safetensors in it, is no adapter (LoRA), or raise CheckpointError."""
    file = path / _ADAPTER if path.is_dir() else path.with_name(_ADAPTER)
    if not (path.is_dir() or path.suffix == ".safetensors") or not file.is_file():
        return
    config: Any = None
    with suppress(OSError, ValueError, RecursionError):
        config = json.loads(file.read_text(encoding="utf-8"))
    said = config if isinstance(config, dict) else {}
    kind, base = said.get("peft_type"), said.get("base_model_name_or_path")
    named = f" ({kind})" if isinstance(kind, str) else ""
    of = base if isinstance(base, str) and base else "a model that it does not name"
    target = f"{file.parent.absolute().name}.mdl"
    raise CheckpointError(
        f"{path}: must be a whole model, got an adapter{named} of {of}",
        f"cstool checkpoint convert {shlex.quote(str(file.parent))} {shlex.quote(target)} --base BASE.mdl makes a "
        "checkpoint of it, beside that model's",
    )
