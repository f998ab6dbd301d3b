"""Imports of host scripts that fail: the error names a module, or a name, to import instead."""

import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from cstool.foundation.words import did_you_mean

MODULES = (
    "cerebras.appliance.pb.sdk.sdk_common_pb2",
    "cerebras.geometry.geometry",
    "cerebras.sdk.client",
    "cerebras.sdk.debug.debug_util",
    "cerebras.sdk.runtime.runtime_utils",
    "cerebras.sdk.runtime.sdkruntimepybind",
    "cerebras.sdk.sdk_utils",
)
"""modules of the package `cerebras` that scripts import"""
_RUNTIME = "SdkRuntime of cerebras.sdk.runtime.sdkruntimepybind copies and launches"
_SYMBOLS = "its read_symbol reads variables of PEs"
_BEFORE = ("it came before SdkRuntime", _RUNTIME)
INSTEAD = {
    "cerebras.elf": (
        "a compiled program has no ELF files here, and no CSELFRunner",
        f"{_RUNTIME}; {_SYMBOLS}",
    ),
    "cerebras.sdk.runtime.cs_runtime": _BEFORE,
    "cs_runtime": _BEFORE,
    "cs_elf_runner": _BEFORE,
    "cerebras.csdb": (
        "there is no debugger here",
        "cstool fabric trace, and reports of deadlocks, tell of PEs",
    ),
    "cerebras.cloud": ("it is the client of the inference API", "python -m pip install cerebras_cloud_sdk"),
}
"""missing modules, with all in them: the reason, and a replacement"""


class Finder:
    """The last finder of `sys.meta_path`: it is asked for modules that no other finder has."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG004 - the signature of finders
        """Raise an error with a replacement, for a module of the vendor's.

        Raises:
            ModuleNotFoundError: the module is one of the vendor's that is not here
        """
        known = next((each for each in INSTEAD if name == each or name.startswith(f"{each}.")), None)
        if known is not None:
            why, hint = INSTEAD[known]
            raise ModuleNotFoundError(f"No module named '{name}': {why}\nhint: {hint}", name=name)
        if name.startswith("cerebras."):
            parent, _, last = name.rpartition(".")
            hint = did_you_mean(last, _in(parent)) or f"cs_python has {', '.join(MODULES)}"
            raise ModuleNotFoundError(f"No module named '{name}'\nhint: {hint}", name=name)
        return None


def note_on(error: BaseException) -> None:
    """Add the nearest name to the error of an import of a name that a module of the vendor's does not have."""
    if not isinstance(error, ImportError) or isinstance(error, ModuleNotFoundError):
        return
    found, of = re.match(r"cannot import name '(\w+)'", str(error)), error.name or ""
    if found and of.startswith("cerebras"):
        names = [*getattr(sys.modules.get(of), "__all__", ()), *_in(of)]
        error.add_note(f"hint: {did_you_mean(found[1], names) or 'it has ' + ', '.join(names)}")


def _in(package: str) -> list[str]:
    """Names of the modules in a package of the vendor's."""
    return sorted(
        {each.removeprefix(f"{package}.").split(".")[0] for each in MODULES if each.startswith(f"{package}.")}
    )
