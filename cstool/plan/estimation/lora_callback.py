"""The vendor's callback `Lora`, as its params files have it: read for estimates, since a run here has no adapters.

Source: the vendor's model zoo, common/utils/model/lora.py and trainer/callbacks/lora.py: `r` is the rank, and a layer
gets an adapter if all `target_modules` are among the classes of the modules around it, its own included; all weights
but the adapters' are frozen. Scale, dropout and merging take no time that counts.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cstool.foundation.errors import EstimateError
from cstool.foundation.yaml_lines.document import read_document

NAME = "Lora"
KEY = "trainer.init.callbacks"
MODULES = {
    "TransformerDecoder": "transformer_decoder.",
    "TransformerEncoder": "transformer_encoder.",
    "TransformerDecoderLayer": "layers.",
    "TransformerEncoderLayer": "layers.",
    "MultiheadAttention": "self_attn.",
    "FeedForwardNetwork": "ffn.",
    "Linear": "",
}
"""classes of modules, outer ones first -> parts of the names of layers in them"""


def without_lora(file: Path, overrides: Sequence[str]) -> tuple[tuple[str, ...], str | None]:
    """Return the overrides of a params file that take the vendor's callback `Lora` out of it, and its adapters.

    Args:
        file: of params, or the name of a stock one
        overrides: of its values, which stay

    Returns:
        With the adapters as `--adapters` has them; None where the file has none

    Raises:
        EstimateError: the adapters are none that can be estimated
        ParamsError: the file cannot be read
    """
    found = take_lora(file)
    if found is None:
        return tuple(overrides), None
    rest, adapters = found
    return (f"{KEY}={json.dumps(rest) if rest else 'null'}", *overrides), adapters


def take_lora(file: Path) -> tuple[list[Any], str] | None:
    """Return the callbacks of a params file without the adapters' callback, and this one in the form of `--adapters`.

    None where the file has no such callback, is invalid, or is not of one trainer: the reader of the params reports it.

    Raises:
        EstimateError: the adapters are none that can be estimated
        ParamsError: the file cannot be read
    """
    if not file.is_file() or NAME not in file.read_text(encoding="utf-8", errors="replace"):
        return None
    data = read_document(file).data
    for key in KEY.split("."):
        data = data.get(key) if isinstance(data, dict) else None
    if not isinstance(data, list):
        return None
    found = [each[NAME] for each in data if isinstance(each, dict) and list(each) == [NAME]]
    if not found or found[-1] is None:
        return None
    rest = [each for each in data if not (isinstance(each, dict) and list(each) == [NAME])]
    return rest, _adapters_text(f"{file}: {KEY}: {NAME}.lora_params", found[-1])


def _adapters_text(where: str, callback: Any) -> str:
    groups = callback.get("lora_params") if isinstance(callback, dict) else None
    groups = groups if isinstance(groups, list) else [groups]
    if len(groups) != 1 or not isinstance(groups[0], dict):
        raise EstimateError(f"{where}: must be one mapping with r and target_modules, got {groups}")
    rank, modules = groups[0].get("r", 0), groups[0].get("target_modules")
    if type(rank) is not int or rank < 1:
        raise EstimateError(f"{where}.r: must be a whole number, at least 1, got {rank}")
    if not isinstance(modules, list) or "Linear" not in modules or not all(name in MODULES for name in modules):
        raise EstimateError(
            f"{where}.target_modules: must have Linear and, of the modules around it, only those known here, "
            f"got {modules}",
            f"they are {', '.join(name for name in MODULES if name != 'Linear')}",
        )
    parts = dict.fromkeys(part for name, part in MODULES.items() if name in modules and part)
    return f"rank={rank},layers=*{'*'.join(parts)}*" if parts else f"rank={rank},layers=all"
