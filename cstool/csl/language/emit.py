"""Functions of a PE program as Python over `fabric.interface`.

A function is written at its first call, one copy for each set of compile-time arguments; the functions that it calls
are written before it, so that it is known whether they wait. A scalar is a Python number; an array or a struct of a
function has a place of its own in SRAM, so that no function may call itself.
"""

import keyword
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cstool.csl.fabric.dsd import FabricIn, FabricOut
from cstool.csl.language import costs, emit_control, emit_loops, emit_statements, emit_vector, evaluate, syntax, types
from cstool.csl.language.builtins_dsd import UNKNOWN_COLOR
from cstool.csl.language.emit_code import Code, literal
from cstool.csl.language.emit_frame import Frame, Line, Local
from cstool.csl.language.emit_memory import VIEWS, Address
from cstool.csl.language.emit_places import Spot, store
from cstool.csl.language.evaluate import Specialised
from cstool.csl.language.instance import EmittedCode, Instance, Root
from cstool.csl.language.limits import FUNCTION
from cstool.csl.language.module import Variable
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import ArrayType, OpaqueType, PointerType, StructType, Type
from cstool.csl.language.values import FunctionValue

_REGISTERED = (emit_loops, emit_vector)
"""modules that fill the tables of statements, expressions and builtins"""

_IMPORTS = {
    "cstool.csl.fabric.dsd": "Dsr FabricIn FabricOut Fifo Mem1d Mem4d OnControl Pointer Settings",
    "cstool.csl.fabric.interface": "offset_dsd placed_dsd",
    "cstool.csl.fabric.memory": "HALVES",
    "cstool.csl.fabric.numbers": "bf16 f16",
    "cstool.csl.fabric.prng": "random16 set_active_prng",
    "cstool.csl.fabric.scalar": "bfloat16 bits16 bits32 finished float16 float32 function integer load64 modulo "
    "outside quotient ratio remainder shift shown store64 upper",
}
"""imports of compiled code, by module"""
_OWN = "pe program R NAN INFINITY FUNCTIONS TASKS"
_BUILTINS = "bool bytearray bytes enumerate float int len list memoryview range tuple"
TAKEN = frozenset(" ".join([*_IMPORTS.values(), *VIEWS.values(), _OWN, _BUILTINS]).split())
"""all names that compiled code uses for itself: names of the program differ from them"""


@dataclass(eq=False)
class Written:
    """A function, written or in progress.

    Args:
        name: its name in Python
        result: the type that it returns
    """

    name: str
    result: Type
    waits: bool = False
    done: bool = False
    lines: list[Line] = field(default_factory=list)
    instructions: int = 0


class Unaligned(Exception):  # noqa: N818 - no error: it starts the writing anew
    """A pointer to 32 bits may be an odd multiple of 2: emit again with unaligned accesses by pointers."""


class PointersWait(Exception):  # noqa: N818 - likewise
    """A function called by pointer waits: emit again with calls by pointers that may wait."""


class ProgramText:
    """The text of one program.

    Args:
        instance: the program
        unaligned: whether pointers to 32 bits may be odd multiples of 2
        pointers_wait: whether a function that is called by a pointer may wait
        stack: addresses of locals in SRAM from an earlier attempt, by name and type
    """

    def __init__(
        self, instance: Instance, unaligned: bool, pointers_wait: bool, stack: dict[tuple[str, str, int], int]
    ) -> None:
        self.instance = instance
        self.unaligned = unaligned
        self.pointers_wait = pointers_wait
        self.views: set[str] = set()
        self.inputs: set[int] = set()
        self.outputs: set[int] = set()
        self.local_names: set[str] = set()
        self.module_names: set[str] = set()
        self._stack = stack
        self._stack_used: dict[tuple[str, str], int] = {}
        self._functions: dict[object, Written] = {}
        self._order: list[Written] = []
        self._constants: dict[str, str] = {}
        self._constant_lines: list[str] = []
        self._objects: dict[int, str] = {}
        self._object_lines: list[str] = []
        self._cells = self._depth = 0

    # --- asked for by frames ---

    def free_name(self, name: str, taken: set[str]) -> str:
        """An unused Python name like `name`."""
        base = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_") or "value"
        if base[0].isdigit():
            base = f"_{base}"
        chosen, number = base, 2
        while chosen in taken or chosen in self.module_names or chosen in TAKEN or keyword.iskeyword(chosen):
            chosen = f"{base}_{number}"
            number += 1
        return chosen

    def _module_name(self, name: str) -> str:
        chosen = self.free_name(name, self.local_names)
        self.module_names.add(chosen)
        return chosen

    def cell(self) -> int:
        """A new cell for rounding to float32."""
        self._cells += 1
        return self._cells - 1

    def in_sram(self, type_: Type) -> bool:
        """Whether values of a type are in SRAM; DSDs, and arrays and structs with DSDs, are Python's."""
        if isinstance(type_, ArrayType):
            return self.in_sram(type_.element)
        if isinstance(type_, StructType):
            return all(self.in_sram(field) for _, field in type_.fields)
        return not (isinstance(type_, OpaqueType) and type_.is_dsd)

    def need_unaligned(self, pointer: PointerType) -> None:
        """Note a pointer whose address may be no multiple of its element's size.

        Raises:
            Unaligned: the code written so far does not allow for it.
        """
        if pointer.pointee.align > 2 and not self.unaligned:
            raise Unaligned

    def stack(self, name: str, type_: Type, place: Place) -> int:
        """Address of a local in SRAM."""
        again = self._stack_used.get((name, str(type_)), 0)
        self._stack_used[(name, str(type_))] = again + 1
        key = (name, str(type_), again)
        if key not in self._stack:
            self._stack[key] = self.instance.allocate(name, type_, place)
        return self._stack[key]

    def note(self, data: object) -> None:
        """Note the color that an operand sends or receives."""
        if isinstance(data, FabricIn):
            color = self.instance.queue_color(data.queue, False) if data.color is None else data.color
            if color is not None:
                self.inputs.add(color)
        elif isinstance(data, FabricOut):
            color = self.resolved(data).color
            if color != UNKNOWN_COLOR:
                self.outputs.add(color)

    def resolved(self, data: Any) -> Any:
        """A stream with its color: its queue's, where it names none itself. A queue never bound leaves it unknown.

        Any other data is as it was.
        """
        if not isinstance(data, FabricOut) or data.color != UNKNOWN_COLOR:
            return data
        color = self.instance.queue_color(data.queue, True)
        return data if color is None else data._replace(color=color)

    def constant(self, name: str, type_: Type, data: Any) -> str:
        """The name of a constant of the whole program: a DSD, an array."""
        text = literal(type_, self.resolved(data))
        if text not in self._constants:
            chosen = self._module_name(name.strip("'"))
            self._constants[text] = chosen
            self._constant_lines.append(f"{chosen} = {text}")
        return self._constants[text]

    def object(self, variable: Variable) -> str:
        """The Python variable of a global `var` that is not in SRAM."""
        key = id(variable)
        if key not in self._objects:
            self._objects[key] = self._module_name(variable.name)
            text = literal(variable.type, self.resolved(variable.initial))
            if isinstance(variable.type, ArrayType):
                text = f"list({text})"
            self.note(variable.initial)
            self._object_lines.append(f"{self._objects[key]} = {text}")
        return self._objects[key]

    # --- functions ---

    def function(self, chosen: Specialised, place: Place | None, root: Root | None = None) -> Written:
        """A function, written now if it is not written yet.

        Raises:
            CslError: it has an error, or it calls itself.
        """
        declared = chosen.function.declaration
        found = self._functions.get(chosen.key)
        if found is not None:
            if not found.done:
                raise CslError(
                    f"a function must not call itself, got {declared.name}()", place, "a PE has no stack; use a loop"
                )
            return found
        limits = self.instance.limits
        limits.take(place, FUNCTION)
        limits.check_depth(self._depth + 1, "functions that call one another", declared.name, place)
        name = self._module_name(declared.name if root is None else root.name)
        written = Written(name, chosen.result)
        self._functions[chosen.key] = written
        self._depth += 1
        with self.instance.keeper.keeping():
            try:
                self._write(written, chosen)
            except CslError as error:
                raise _called_from(error, declared, place) from None
            finally:
                self._depth -= 1
        written.done = True
        self._order.append(written)
        return written

    def _write(self, written: Written, chosen: Specialised) -> None:
        declared = chosen.function.declaration
        if declared.body is None:
            raise CslError(f"'{declared.name}' is extern, there is nothing to run", declared.place)
        frame = Frame(self, chosen.scope, written.name, declared.place, chosen.result)
        frame.escaping = emit_statements.escaping(declared.body)
        frame.indent = 2
        names = []
        for _, name, type_ in chosen.parameters:
            python = frame.fresh(name)
            names.append(python)
            code = Code(type_, python)
            if name in frame.escaping and self.in_sram(type_):
                address = self.stack(f"{written.name}.{name}", type_, declared.place)
                store(frame, Spot(type_, f"'{name}'", address=Address(address)), code, declared.place)
                frame.declare(name, Local(type_, address), declared.place)
            else:
                frame.declare(name, Local(type_, code=code), declared.place)
        falls = emit_control.statements(frame, declared.body.statements)
        if falls and chosen.result != types.VOID:
            raise CslError(f"{declared.name}() must return {chosen.result} on every way through it", declared.place)
        frame.flush()
        head = [Line(f"    def {written.name}({', '.join(names)}):  # {declared.place}", None)]
        if frame.objects:
            head.append(Line(f"        nonlocal {', '.join(sorted(frame.objects))}", None))
        body = frame.lines or [Line("        pass", None)]
        written.lines = [*head, *body]
        written.waits = frame.waits
        written.instructions = frame.instructions + 2

    def pointed(self) -> dict[int, Written]:
        """The functions that are used by pointer.

        Raises:
            PointersWait: the code written so far does not allow for one that waits.
        """
        found: dict[int, Written] = {}
        for function in self.instance.pointed:  # it grows meanwhile
            if _is_task(function):
                continue
            parameters = [type_ or types.VOID for type_ in evaluate.function_type(function).parameters]
            place = function.declaration.place
            written = self.function(evaluate.specialise(function, parameters, place), place)
            if written.waits and not self.pointers_wait:
                raise PointersWait
            found[self.instance.pointer_to(function)] = written
        return found

    # --- the whole ---

    def loads(self) -> list[str]:
        """Lines of what registers hold when the program begins. They take no cycles."""
        lines: list[str] = []
        for node, scope in self.instance.loads:
            frame = Frame(self, scope, "", node.place, types.VOID)
            frame.indent = 1
            frame.expression(node)
            lines += [line for line in frame.lines if "pe.cycles" not in line]
        return lines

    def text(self, roots: Sequence[tuple[str, Written]], pointed: dict[int, Written]) -> tuple[str, dict[int, str]]:
        """The whole text of the program, and the place of the statement that begins at a line of it, by line."""
        loads = self.loads()
        body = [line for written in self._order for line in [Line("", None), *written.lines]]
        lines = [*body, *loads, *self._constant_lines, *self._object_lines]
        used = set(re.findall(r"[A-Za-z_]\w*", "\n".join(lines)))
        out = [repr(f"{self.instance.name} for {self.instance.arch.name}."), ""]
        out += _imports(used)
        out += ["", "def program(pe):"]
        for letter in sorted(self.views):
            if VIEWS[letter] in used or (letter == "e" and "F16" in used):
                out.append(f"    {VIEWS[letter]} = pe.{VIEWS[letter].lower()}")
        if "R" in used:
            out.append(f"    R = memoryview(bytearray({4 * self._cells})).cast('f')  # what is put here is rounded")
        out += [*(f"    {line}" for line in [*self._constant_lines, *self._object_lines]), *loads]
        if "FUNCTIONS" in used:
            out.append("    FUNCTIONS = {}  # by what points to them")
        if "TASKS" in used:
            pairs = ((each, self.instance.task_id(each, None)) for each in self.instance.pointed if _is_task(each))
            table = ", ".join(f"{self.instance.pointer_to(task)}: {number}" for task, number in pairs)
            out.append(f"    TASKS = {{{table}}}  # ids, by what points to them")
        statements = _statements(body, len(out) + 1)
        out += body
        if "FUNCTIONS" in used:
            table = ", ".join(f"{pointer}: {written.name}" for pointer, written in pointed.items())
            out += ["", f"    FUNCTIONS.update({{{table}}})"]
        names = ", ".join(f"{name!r}: {written.name}" for name, written in roots)
        return "\n".join([*out, "", f"    return {{{names}}}", ""]), statements

    def code_bytes(self) -> dict[str, int]:
        """Modelled bytes of machine code by function."""
        return {each.name: each.instructions * costs.INSTRUCTION_BYTES for each in self._order}


def _statements(lines: Sequence[Line], first: int) -> dict[int, str]:
    """Places of statements by the line that each begins at; the number of the first line is `first`."""
    found: dict[int, str] = {}
    latest: Place | None = None
    for number, line in enumerate(lines, start=first):
        if line.place is None:
            # A function or a branch begins here, or cycles are counted: what comes after a count still belongs to it.
            latest = latest if line.lstrip().startswith("pe.cycles") else None
        elif line.lstrip().startswith(("else:", "elif ", "pass")):
            latest = None
        elif line.place != latest:
            latest = line.place
            found[number] = str(latest)
    return found


def _is_task(function: FunctionValue) -> bool:
    return function.declaration.kind == "task"


def _called_from(error: CslError, declared: syntax.Function, place: Place | None) -> CslError:
    if place is None or len(error.notes) >= 4 or (error.place is not None and error.place.source is place.source):
        return error
    return error.noted(place, f"{declared.name}() is called here")


def _imports(used: set[str]) -> list[str]:
    lines = []
    if used & {"NAN", "INFINITY"}:
        lines += ["from math import inf as INFINITY", "from math import nan as NAN", ""]
    for module, names in _IMPORTS.items():
        found = sorted({*names.split()} & used)
        if found:
            lines.append(f"from {module} import {', '.join(found)}")
    return [*lines, ""]


def emit_program(instance: Instance, roots: Sequence[Root]) -> EmittedCode:
    """The functions of a program that are started from outside, with all that they call, as Python.

    Args:
        instance: the program, all of whose compile time is done
        roots: the functions started from outside

    Raises:
        CslError: one of them has an error.
    """
    stack: dict[tuple[str, str, int], int] = {}
    unaligned = pointers_wait = False
    while True:
        program = ProgramText(instance, unaligned, pointers_wait, stack)
        try:
            made = [(root.name, _root(program, root)) for root in roots]
            pointed = program.pointed()
        except Unaligned:
            unaligned = True
        except PointersWait:
            pointers_wait = True
        else:
            text, statements = program.text(made, pointed)
            return EmittedCode(
                text, program.code_bytes(), frozenset(program.inputs), frozenset(program.outputs), statements
            )


def _root(program: ProgramText, root: Root) -> Written:
    generic = evaluate.function_type(root.function)
    arguments = []
    for type_ in generic.parameters:
        if type_ is None:
            raise CslError(
                f"'{root.name}' is started from outside and cannot be generic", root.function.declaration.place
            )
        arguments.append(type_)
    chosen = evaluate.specialise(root.function, arguments, root.function.declaration.place)
    return program.function(chosen, None, root)
