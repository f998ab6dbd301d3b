"""Write checkpoints as the vendor's own library does: flat HDF5, written with h5py alone. It imports nothing of cstool.

Source: what cerebras_pytorch 2.10.0 writes; names of attributes and the order of weights are facts from there.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

Array = np.ndarray


class Bfloat16:
    """A tensor of bfloat16, as the upper halves of float32."""

    def __init__(self, bits: Array) -> None:
        self.bits = bits.view(np.int16)
        self.shape = bits.shape


class Object:
    """Bytes that only the vendor's library would run."""


class Link:
    """A tied weight."""

    def __init__(self, key: str) -> None:
        self.key = key


class Constant:
    """A tensor of one number."""

    def __init__(self, shape: tuple[int, ...], number: float) -> None:
        self.shape, self.number = shape, number


def write_vendor(
    path: Path,
    state: Mapping[str, Any],
    *,
    compression: Mapping[str, Any] | None = None,
    version: float = 0.5,
    success: bool = True,
    order: bool = True,
) -> Path:
    """Write a state given by dotted keys.

    Args:
        compression: of datasets, for h5py; None for gzip
        order: whether the file says the order of the keys, as it does where JSON can say the state
    """
    compression = {"compression": "gzip", "compression_opts": 1} if compression is None else compression
    with h5py.File(path, "w") as file:
        file.attrs["__version__"] = version
        file.attrs["__cstorch_version__"] = "2.10.0"
        file.attrs["__spec__"] = json.dumps([_nested(state) if order else None, "[1, {}]"], indent=4)
        first: dict[int, str] = {}
        for key, given in state.items():
            # One object at several keys is stored once; Python has small numbers, truth values and None once.
            value = Link(first[id(given)]) if id(given) in first else given
            first.setdefault(id(given), key)
            leaf = {f"{key}.__metadata__": _write(file, key, value, compression)}
            if isinstance(value, Constant):
                leaf = {
                    f"{key}.0.__metadata__": {"shape": list(value.shape), "dtype": "torch.float32",
                                              "fill_value": value.number, "__NONE__": True},
                    f"{key}.1.__metadata__": {"__TORCH__": True, "__TYPE__": "TorchTensorSerializer"},
                }  # fmt: skip
            described = {"__spec__": [None, "[1, {}]"], "__objects__": [key], **leaf}
            file.attrs[f"{key}.__metadata__"] = json.dumps(described, indent=4)
        if success:
            file.attrs["__SUCCESS__"] = True
    return path


def _write(file: h5py.File, key: str, value: Any, compression: Mapping[str, Any]) -> dict[str, Any]:
    match value:
        case Link():
            return {"key": value.key, "__LINKED__": True, "__TYPE__": "LinkedObject", "__NONE__": True}
        case Constant():
            return {}
        case Object():
            dataset = file.create_dataset(key, data=h5py.Empty("f"))
            dataset.attrs["__BYTES__"] = np.void(b"\x80\x04cos\nsystem\n.")
            dataset.attrs["__TYPE__"] = "ObjectSerializer"
            return {"__TYPE__": "ObjectSerializer", "__BYTES__": True}
        case bool() | int() | float():
            return {"scalar_value": value, "__TYPE__": "ScalarSerializer", "__NONE__": True}
        case str():
            return {"string_value": value, "__TYPE__": "StringSerializer", "__NONE__": True}
        case None:
            return {"__TYPE__": "NoneSerializer", "__NONE__": True}
    bits = value.bits if isinstance(value, Bfloat16) else value
    chunks = {"chunks": tuple(min(n, 7) for n in bits.shape)} if bits.shape else {}
    dataset = file.create_dataset(key, data=bits, **(dict(compression) if bits.shape else {}), **chunks)
    said = {
        "__TYPE__": "TorchTensorSerializer",
        "__TORCH__": True,
        "__NUMPY__": True,
        "shapes": [list(value.shape)],
        "dtypes": ["torch.bfloat16" if isinstance(value, Bfloat16) else f"torch.{bits.dtype}"],
        "compressed": False,
    }
    dataset.attrs.update({k: v for k, v in said.items() if k != "shapes"})
    return said


def _nested(state: Mapping[str, Any]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for key in state:
        *path, last = key.split(".")
        here = root
        for part in path:
            here = here.setdefault(part, {})
        here[last] = "*"
    return {key: _listed(part) for key, part in root.items()}


def _listed(part: Any) -> Any:
    """Return lists where the keys of a mapping count from 0 on, but for the states of an optimizer, which is one."""
    if not isinstance(part, dict):
        return part
    found = {key: below if key == "state" else _listed(below) for key, below in part.items()}
    return list(found.values()) if list(found) == [str(n) for n in range(len(found))] else found
