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
Special = Callable[[syntax.Builtin, Scope], Code]


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
    """

    name: str
    least: int
    most: int
    where: tuple[str, ...]
    meaning: str
    refused: str | None = None
    arch: str | None = None


BUILTINS: dict[str, Builtin] = {}
_ACTIONS: dict[str, Action] = {}
_SPECIAL: dict[str, Special] = {}
_PURE: set[str] = set()


def builtin(
    name: str, least: int, most: int, where: tuple[str, ...], meaning: str, arch: str | None = None, pure: bool = True
) -> Callable[[Action], Action]:
    """Register the implementation of a builtin; `pure` if it may be folded when all its arguments are constant."""

    def register(action: Action) -> Action:
        BUILTINS[name] = Builtin(name, least, most, where, meaning, None, arch)
        _ACTIONS[name] = action
        if pure and where[0] == VALUE:
            _PURE.add(name)
        return action

    return register


def special(name: str, least: int, most: int, where: tuple[str, ...], meaning: str) -> Callable[[Special], Special]:
    """Register a builtin that gets its arguments unevaluated."""

    def register(compiler: Special) -> Special:
        BUILTINS[name] = Builtin(name, least, most, where, meaning)
        _SPECIAL[name] = compiler
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
    if found is None:
        near = nearest(name, BUILTINS)
        raise CslError(f"unknown builtin @{name}", node.place, None if near is None else f"did you mean @{near}?")
    if found.refused is not None:
        raise CslError(f"@{name} is not supported: {found.refused}", node.place)
    if found.arch is not None and found.arch != instance.arch.name:
        raise CslError(f"@{name} exists on {found.arch} alone, this is compiled for {instance.arch.name}", node.place)
    if not found.least <= count <= found.most:
        if found.least == found.most:
            wanted_text = counted(found.least, "argument")
        else:
            wanted_text = f"{found.least} to {found.most} arguments"
        raise CslError(f"@{name} takes {wanted_text}, got {count}", node.place)
    return found


def _misplaced(spec: Builtin, place: Place) -> CslError:
    if RUN in spec.where:
        return NotKnown(f"@{spec.name} happens at run time: it has no value at compile time", place)
    where = " or ".join(_WHERE_TEXT[each] for each in spec.where)
    return CslError(f"@{spec.name} stands in {where} alone", place)


@EXPRESSIONS.at(syntax.Builtin)
def _builtin(node: syntax.Builtin, scope: Scope) -> Code:
    module = scope.module
    instance = module.instance
    spec = check_builtin(node, instance, module.is_library)
    name, place = node.name, node.place
    if spec is not None and name in _SPECIAL:
        return _SPECIAL[name](node, scope)
    action = _ACTIONS.get(name)
    parts = [scope.expression(argument) for argument in node.arguments]
    runs = [part.run for part in parts]
    if spec is None:
        if action is None:
            raise NotKnown(f"@{name} happens at run time: it has no value at compile time", place)
        intrinsic = action
        return Code(lambda frame: intrinsic(Called(instance, node, [run(frame) for run in runs], scope)))
    if action is None:
        raise _misplaced(spec, place)
    does = action
    always = VALUE in spec.where
    in_blocks = (LAYOUT if instance.is_layout else COMPTIME) in spec.where

    def run(frame: Frame) -> Value:
        if not always and (not in_blocks or instance.phase == "value"):
            raise _misplaced(spec, place)
        return does(Called(instance, node, [run(frame) for run in runs], scope))

    if name in _PURE and all(part.value is not None for part in parts):
        return constant(run([]))
    return Code(run)


def intrinsic_action(name: str) -> Callable[[Action], Action]:
    """Register the implementation of an intrinsic at compile time."""

    def register(action: Action) -> Action:
        _ACTIONS[name] = action
        return action

    return register


for _name, _forms in FORMS.items():
    _least = min(map(len, _forms))
    run_time(_name, _least, _least + 1, f"dest = {MEANINGS[_name]}")
run_time("map", 2, 9, "calls a function for each element of DSDs")
run_time("load_to_dsr", 2, 3, "puts a DSD into a register")
run_time("queue_flush", 1, 1, "calls the teardown task when a queue is empty", "wse3")
run_time("random16", 0, 0, "16 pseudo-random bits")
run_time("set_active_prng", 1, 1, "chooses a generator of pseudo-random bits")
run_time("get_config", 1, 1, "a word of the configuration")
run_time("set_config", 2, 2, "writes a word of the configuration")
refused("dfilt", "what it filters is not documented well enough to simulate")
refused("set_empty_queue_handler", "handlers of empty queues are not simulated; use @queue_flush")
refused("set_fifo_read_length", "the length of a FIFO's operations is that of their other operands here")
refused("set_fifo_write_length", "the length of a FIFO's operations is that of their other operands here")
refused("get_symbol_id", "the host calls functions by name here, not by numbers of symbols")
refused("get_symbol_value", "the host calls functions by name here, not by numbers of symbols")
refused("has_exported_tensors", "the host calls functions by name here, not by numbers of symbols")
refused("get_tensor_ptr", "the host calls functions by name here, not by numbers of symbols")
