"""All builtins that the vendor documents: their allowed places, number of arguments, and implementation.

One table, `BUILTINS`; documentation is made from it too. Names and places after SDK 2.10 documentation, "Builtins",
"Builtins for DSD Operations", "Builtins (WSE-3)" and "Builtins for Supporting Remote Procedure Calls".
"""

from collections.abc import Callable
from dataclasses import dataclass

from cstool.csl.language import syntax
from cstool.csl.language.evaluate_core import EXPRESSIONS, Code, Frame, NotKnown, Scope, constant
from cstool.csl.language.instance import Instance
from cstool.csl.language.intrinsics import INTRINSICS
from cstool.csl.language.operands import FORMS, MEANINGS
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.together import EFFECTS, Apart
from cstool.csl.language.values import Value
from cstool.foundation.words import counted, nearest

VALUE, COMPTIME, LAYOUT, RUN = "value", "comptime", "layout", "run"
"""Places of a builtin: anywhere, if its arguments are known; in `comptime` blocks of PE programs; in layouts; in
functions, where `emit.py` makes code of it."""
_WHERE_TEXT = {COMPTIME: "a comptime block", LAYOUT: "a layout block", RUN: "code of run time"}


@dataclass(slots=True, eq=False)
class Called:
    """A call of a builtin at compile time.

    Args:
        instance: the program or layout in compilation
        node: the call
        arguments: values of its arguments
        scope: meanings of names there
    """

    instance: Instance
    node: syntax.Builtin
    arguments: list[Value]
    scope: Scope

    @property
    def place(self) -> Place:
        """Its place."""
        return self.node.place

    def at(self, index: int) -> Place:
        """The place of an argument."""
        return self.node.arguments[index].place


Action = Callable[[Called], Value]
Compiler = Callable[[syntax.Builtin, Scope], Code]


@dataclass(frozen=True)
class Builtin:
    """One builtin.

    Args:
        name: without the `@`
        least, most: number of arguments
        where: its allowed places
        meaning: in a few words
        refused: the reason why it is not supported; None: it is
        arch: the generation, if only one has it
        action: its implementation at compile time
        pure: whether it is folded when all its arguments are constant
        compiler: its implementation, if it gets its arguments unevaluated
    """

    name: str
    least: int
    most: int
    where: tuple[str, ...]
    meaning: str
    refused: str | None = None
    arch: str | None = None
    action: Action | None = None
    pure: bool = False
    compiler: Compiler | None = None


BUILTINS: dict[str, Builtin] = {}
REPLACED = {
    "set_dsr_base_addr": "load the register again: @load_to_dsr(r, @set_dsd_base_addr(d, p))",
    "set_dsr_length": "load the register again: @load_to_dsr(r, @set_dsd_length(d, n))",
    "set_dsr_stride": "load the register again: @load_to_dsr(r, @set_dsd_stride(d, n))",
    "random": "@random16()",
}
"""Builtins that newer SDKs do not have, each with its replacement."""
INTRINSIC_ACTIONS: syntax.Table[str, Action] = syntax.Table()
"""Implementations of intrinsics at compile time, by name without the @."""


def builtin(
    name: str, least: int, most: int, where: tuple[str, ...], meaning: str, arch: str | None = None, pure: bool = True
) -> Callable[[Action], Action]:
    """Register the implementation of a builtin; `pure` if it may be folded when all its arguments are constant."""

    def register(action: Action) -> Action:
        folds = pure and where[0] == VALUE
        BUILTINS[name] = Builtin(name, least, most, where, meaning, None, arch, action, folds)
        return action

    return register


def special(name: str, least: int, most: int, where: tuple[str, ...], meaning: str) -> Callable[[Compiler], Compiler]:
    """Register a builtin that gets its arguments unevaluated."""

    def register(compiler: Compiler) -> Compiler:
        BUILTINS[name] = Builtin(name, least, most, where, meaning, compiler=compiler)
        return compiler

    return register


def run_time(name: str, least: int, most: int, meaning: str, arch: str | None = None) -> None:
    """List a builtin that runs as code of `emit.py`."""
    BUILTINS[name] = Builtin(name, least, most, (RUN,), meaning, None, arch)


def refused(name: str, reason: str) -> None:
    """List a builtin that is documented and not supported."""
    BUILTINS[name] = Builtin(name, 0, 9, (), "", reason)


def check_builtin(node: syntax.Builtin, instance: Instance, is_library: bool) -> Builtin | None:
    """Look a builtin up; None if it is one of the library's own (`intrinsics`).

    Raises:
        CslError: there is none of the name, it is not supported, not of this generation, or takes another number of
            arguments.
    """
    name, count = node.name, len(node.arguments)
    if name.startswith("__") and is_library and name in INTRINSICS:
        wanted = len(INTRINSICS[name].parameters)
        if count != wanted:
            raise CslError(f"@{name} takes {counted(wanted, 'argument')}, got {count}", node.place)
        return None
    found = BUILTINS.get(name)
    if found is None and name in REPLACED:
        raise CslError(f"@{name} is of an SDK before 1.0", node.place, REPLACED[name])
    if found is None:
        near = nearest(name, BUILTINS)
        raise CslError(f"unknown builtin @{name}", node.place, None if near is None else f"did you mean @{near}?")
    if found.refused is not None:
        raise CslError(f"@{name} is not supported: {found.refused}", node.place)
    if found.arch is not None and found.arch != instance.arch.name:
        raise CslError(f"@{name} exists on {found.arch} alone, this is compiled for {instance.arch.name}", node.place)
    if not found.least <= count <= found.most:
        exact = found.least == found.most
        takes = counted(found.least, "argument") if exact else f"{found.least} to {found.most} arguments"
        raise CslError(f"@{name} takes {takes}, got {count}", node.place)
    return found


def _misplaced(node: syntax.Builtin, spec: Builtin | None) -> CslError:
    if spec is None or RUN in spec.where:
        return NotKnown(f"@{node.name} happens at run time: it has no value at compile time", node.place)
    where = " or ".join(_WHERE_TEXT[each] for each in spec.where)
    return CslError(f"@{node.name} stands in {where} alone", node.place)


@EXPRESSIONS.at(syntax.Builtin)
def _builtin(node: syntax.Builtin, scope: Scope) -> Code:
    module = scope.module
    instance = module.instance
    spec = check_builtin(node, instance, module.is_library)
    if spec is not None and spec.compiler is not None:
        return spec.compiler(node, scope)
    action = INTRINSIC_ACTIONS.get(node.name) if spec is None else spec.action
    parts = [scope.expression(argument) for argument in node.arguments]
    runs = [part.run for part in parts]
    if action is None:
        raise _misplaced(node, spec)
    does = action
    always = spec is None or VALUE in spec.where
    in_blocks = spec is not None and (LAYOUT if instance.is_layout else COMPTIME) in spec.where

    waits = spec is not None and (spec.pure or node.name in EFFECTS)

    def run(frame: Frame) -> Value:
        if not waits and instance.together is not None:
            raise Apart
        if not always and (not in_blocks or instance.phase == "value"):
            raise _misplaced(node, spec)
        return does(Called(instance, node, [run(frame) for run in runs], scope))

    if spec is not None and spec.pure and all(part.value is not None for part in parts):
        return constant(run([]))
    return Code(run)


for _name, _forms in FORMS.items():
    _least = min(map(len, _forms))
    run_time(_name, _least, _least + 1, MEANINGS[_name] if _name == "dfilt" else f"dest = {MEANINGS[_name]}")
run_time("map", 2, 9, "calls a function for each element of DSDs")
run_time("set_fifo_read_length", 2, 2, "elements of operations that read a FIFO, unless they have vectors in memory")
run_time("set_fifo_write_length", 2, 2, "elements of operations that write a FIFO, unless they have vectors in memory")
run_time("queue_flush", 1, 1, "calls the teardown task when a queue is empty", "wse3")
run_time("random16", 0, 0, "16 pseudo-random bits")
run_time("set_active_prng", 1, 1, "chooses a generator of pseudo-random bits")
for _name in ("get_config", "get_config_unchecked"):
    run_time(_name, 1, 1, "a word of the configuration")
for _name in ("set_config", "set_config_unchecked"):
    run_time(_name, 2, 2, "writes a word of the configuration")
refused("bind_rotating_tasks", "tasks that take turns are not simulated; count in the task itself")
refused("get_symbol_id", "the host calls functions by name here, not by numbers of symbols")
refused("get_symbol_value", "the host calls functions by name here, not by numbers of symbols")
refused("has_exported_tensors", "the host calls functions by name here, not by numbers of symbols")
refused("get_tensor_ptr", "the host calls functions by name here, not by numbers of symbols")
