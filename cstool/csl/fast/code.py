"""The code of PE programs as instructions: Python's text, as the compiler of CSL writes it, function by function.

A function is translated once for each set of types of its arguments. No function calls itself, so that each has
registers of its own: behind the registers of all its callers. So a call only jumps.
"""

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cstool.csl.fabric.dsd import Dsr, FabricIn, FabricOut, Fifo, Mem1d, Mem4d, OnControl, Pointer, Settings
from cstool.csl.fabric.program import PEProgram
from cstool.csl.fast.code_functions import Function
from cstool.csl.fast.code_undefined import undefined
from cstool.csl.fast.code_values import (
    FLOAT,
    INT,
    Const,
    Label,
    Ref,
    Reg,
    TextOf,
    Type,
    UntranslatableError,
    Val,
    record,
    settings_record,
    size_of,
    type_of,
    word_of,
)
from cstool.csl.fast.instructions import BLOCK, DSR_WORDS, FILES, HEADER, RECORD, ROW, TABLE_ROW, Kind

_MAKERS = {each.__name__: each for each in (Dsr, FabricIn, FabricOut, Fifo, Mem1d, Mem4d, OnControl, Pointer, Settings)}
_NUMBERS = {"NAN": float("nan"), "INFINITY": float("inf")}


@dataclass(frozen=True)
class Entry:
    """A function that the simulation starts.

    Args:
        pc: its first row
        back: the register that keeps where its caller goes on
        arguments: a register and a letter (`program.Task.argument`) for each argument
    """

    pc: int
    back: int
    arguments: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Code:
    """A program, translated.

    Args:
        rows: [n, ROW] int32: instructions
        constants: [n] int64
        texts: texts of `@assert`, places, and lines of <debug>: pieces of (text) or (how it is shown, type)
        entries: by name of the function
        words: words of a PE's region: its globals, then registers
        globals: values that the globals have at the start, int64
        code_fields, constant_fields, ref_fields, text_fields: rows and columns that move with where this code's rows,
            constants and texts are put, behind other programs
        constant_refs: constants that are `ref`s of constants, likewise
    """

    rows: NDArray[np.int32]
    constants: NDArray[np.int64]
    texts: tuple[Any, ...]
    entries: dict[str, Entry]
    words: int
    globals: NDArray[np.int64]
    code_fields: NDArray[np.int32]
    constant_fields: NDArray[np.int32]
    ref_fields: NDArray[np.int32]
    text_fields: NDArray[np.int32]

    def block(self, address: int, text: int, function: int, offset: tuple[int, int]) -> NDArray[np.int64]:
        """The words of the program in the state, see `instructions.BLOCK`.

        Args:
            address: of its first word; less than 2**28
            text: its first text among the texts of all programs
            function: address of `interpreter.FUNCTION`
            offset: column and row of the fabric at which the rectangle begins
        """
        constants = address + BLOCK
        table = constants + len(self.constants)
        lists = [[register for register, _ in entry.arguments] for entry in self.entries.values()]
        begin = table + TABLE_ROW * len(lists)
        code = begin + sum(map(len, lists))
        entries: list[int] = []
        for entry, registers in zip(self.entries.values(), lists, strict=True):
            entries += [8 * code + 4 * ROW * entry.pc, entry.back, len(registers), begin]
            begin += len(registers)
        rows = self.rows.copy()
        jumps = self.code_fields[:, 0], self.code_fields[:, 1]
        rows[jumps] = 8 * code + 4 * ROW * rows[jumps]
        for fields, by in ((self.constant_fields, constants), (self.ref_fields, constants << 3)):
            rows[fields[:, 0], fields[:, 1]] += np.int32(by)
        rows[self.text_fields[:, 0], self.text_fields[:, 1]] += np.int32(text)
        head = np.zeros(BLOCK, np.int64)
        head[:5] = self.words, function, table, *offset
        numbers = [each for registers in lists for each in registers]
        return np.concatenate(
            [head, self.constants, np.array([*entries, *numbers], np.int64), rows.reshape(-1).view(np.int64)]
        )

    def number(self, name: str) -> int:
        """The number of a function that the simulation starts."""
        return list(self.entries).index(name)


@dataclass
class Module:
    """All functions of a program, on their way into instructions.

    Attributes:
        definitions: Python's functions by name
        exports: their names by the names that the simulation knows
        values: known names of the program: constants, operands
        global_types, globals: variables that are not in SRAM, and live as long as the PE
        pointers: functions by the pointer that code calls them by
        tasks: ids of tasks by the pointers to them
    """

    program: PEProgram
    definitions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    exports: dict[str, str] = field(default_factory=dict)
    values: dict[str, Val] = field(default_factory=dict)
    globals: dict[str, Reg] = field(default_factory=dict)
    pointers: dict[int, str] = field(default_factory=dict)
    tasks: dict[int, int] = field(default_factory=dict)
    constants: list[int] = field(default_factory=list)
    texts: list[Any] = field(default_factory=list)
    global_words: list[int] = field(default_factory=lambda: [0] * HEADER)
    functions: dict[tuple[str, tuple[Type, ...]], Function] = field(default_factory=dict)
    registers: dict[tuple[str, int], int] = field(default_factory=dict)
    rows: list[tuple[int, list[Any]]] = field(default_factory=list)
    _known: dict[tuple[int, ...], int] = field(default_factory=dict)
    _texts: dict[Any, int] = field(default_factory=dict)

    # --- what functions ask for ---

    def constant(self, words: Sequence[int]) -> Const:
        """The place of words among the constants."""
        key = tuple(int(word) for word in words)
        at = self._known.get(key)
        if at is None:
            at = self._known[key] = len(self.constants)
            self.constants += key
        return Const(at)

    def text(self, content: Any) -> TextOf:
        """The number of a text."""
        if content not in self._texts:
            self._texts[content] = len(self.texts)
            self.texts.append(content)
        return TextOf(self._texts[content])

    def function(self, name: str, types: tuple[Type, ...]) -> Function:
        """A function for arguments of these types, translated."""
        found = self.functions.get((name, types))
        if found is None:
            found = self.functions[name, types] = Function(self, self.definitions[name], types)
            found.translate()
        elif not found.done:
            raise UntranslatableError(f"{name}() calls itself")
        return found

    def known(self, value: Any) -> Val:
        """A value that is known: a scalar, an operand, or a tuple of such."""
        if isinstance(value, Dsr):
            at = self.registers.get((value.file, value.number))
            if at is None:
                at = self.registers[value.file, value.number] = len(self.global_words)
                self.global_words += [0] * DSR_WORDS
            words = [Kind.DSR, at, FILES.index(value.file), value.number]
            return Val("Dsr", self.constant(words), value)
        if hasattr(value, "_fields"):
            return Val(type(value).__name__, self.constant(record(value)), value)
        if isinstance(value, tuple):
            parts = [self.known(each) for each in value]
            return Val(tuple(part.type for part in parts), self.constant(self._words(parts)), value)
        return Val(type_of(value), None, value)

    def _words(self, parts: Iterable[Val]) -> list[int]:
        words: list[int] = []
        for part in parts:
            if isinstance(part.place, Const):
                words += self.constants[part.place.at : part.place.at + size_of(part.type)]
            else:
                words.append(word_of(part.const))
        return words

    # --- the text ---

    def read(self) -> None:
        """Read the text: constants, variables, tables, functions."""
        tree = ast.parse(self.program.code)
        bodies = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "program"]
        if len(bodies) != 1 or len(bodies[0].args.args) != 1:
            raise UntranslatableError("a text without program(pe)")
        changing: set[str] = set()
        for function in bodies[0].body:
            for node in function.body if isinstance(function, ast.FunctionDef) else ():
                if isinstance(node, ast.Nonlocal):
                    changing.update(node.names)
        for statement in bodies[0].body:
            self._statement(statement, changing, bodies[0])

    def _statement(self, node: ast.stmt, changing: set[str], body: ast.FunctionDef) -> None:
        if isinstance(node, ast.FunctionDef):
            self.definitions[node.name] = node
            return
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Dict):
            for key, each in zip(node.value.keys, node.value.values, strict=True):
                self.exports[self.value(key)] = ast.unparse(each)
            return
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name, text = node.targets[0].id, ast.unparse(node.value)
            if text.startswith(("pe.", "memoryview(")) or name == "FUNCTIONS":
                return
            value = self.value(node.value)
            if name == "TASKS":
                self.tasks = value
            elif name in changing:
                self._add_global(name, undefined(body, name) if value is None else value)
            else:
                self.values[name] = self.known(value)
            return
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            text = ast.unparse(node.value.func)
            if text == "FUNCTIONS.update":
                table = node.value.args[0]
                assert isinstance(table, ast.Dict)
                for key, each in zip(table.keys, table.values, strict=True):
                    self.pointers[self.value(key)] = ast.unparse(each)
                return
            if text == "pe.load_dsr":
                self._load(*map(self.value, node.value.args))
                return
        raise UntranslatableError(f"the statement {ast.unparse(node)[:60]!r} of a program")

    def value(self, node: ast.expr | None) -> Any:
        """The value of an expression that is known."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self.value(node.operand)
        if isinstance(node, ast.Tuple):
            return tuple(self.value(each) for each in node.elts)
        if isinstance(node, ast.Dict):
            return {self.value(key): self.value(each) for key, each in zip(node.keys, node.values, strict=True)}
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            return self.value(node.left) * self.value(node.right)
        if isinstance(node, ast.Name) and node.id in _NUMBERS:
            return _NUMBERS[node.id]
        if isinstance(node, ast.Name) and node.id in self.values:
            return self.values[node.id].const
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "list":
                return self.value(node.args[0])
            if node.func.id in _MAKERS:
                named = {each.arg: self.value(each.value) for each in node.keywords if each.arg}
                return _MAKERS[node.func.id](*map(self.value, node.args), **named)
        raise UntranslatableError(f"the value {ast.unparse(node)[:60]!r} of a program" if node else "no value")

    def _load(self, register: Dsr, operand: Any, settings: Settings, save_address: bool) -> None:
        """`@load_to_dsr` before the program begins."""
        self.known(register)
        at = self.registers[register.file, register.number]
        words = record(operand)
        words += [0] * (RECORD - len(words))
        self.global_words[at : at + DSR_WORDS] = [1, int(save_address), *map(int, words), *settings_record(settings)]

    def _add_global(self, name: str, value: Any) -> None:
        known = self.known(value)
        at = len(self.global_words)
        words = self._words([known])
        self.globals[name] = Reg(None, at)
        self.global_words += words
        self.values[name] = Val(known.type, self.globals[name])

    # --- the end ---

    def finished(self, roots: dict[str, tuple[str, ...]]) -> Code:
        """Translate all functions that the simulation starts, by name, with the letters of their arguments."""
        begun = {}
        for name, letters in roots.items():
            types = tuple(FLOAT if letter in "fe" else INT for letter in letters)
            begun[name] = self.function(self.exports[name], types), letters
        self._place_registers()
        entries = {
            name: Entry(
                function.entry.row,
                self._resolved(function.back),
                tuple(
                    (self._resolved(place), letter) for place, letter in zip(function.parameters, letters, strict=True)
                ),
            )
            for name, (function, letters) in begun.items()
        }
        return self._assembled(entries)

    def _place_registers(self) -> None:
        """Lay the registers of each function behind the registers of its callers."""
        order: list[Function] = []
        seen: set[int] = set()

        def visit(function: Function) -> None:
            if id(function) not in seen:
                seen.add(id(function))
                for called in function.calls.values():
                    visit(called)
                order.append(function)

        for function in self.functions.values():
            visit(function)
        for function in reversed(order):
            function.base = max(function.base, len(self.global_words))
            for called in function.calls.values():
                called.base = max(called.base, function.base + function.size)

    def _resolved(self, place: Reg) -> int:
        owner = place.owner
        return place.at + (owner.base if isinstance(owner, Function) else 0)

    def _assembled(self, entries: dict[str, Entry]) -> Code:
        rows = np.zeros((len(self.rows), ROW), np.int32)
        moving: dict[type, list[tuple[int, int]]] = {Label: [], Const: [], Ref: [], TextOf: []}
        for at, (op, fields) in enumerate(self.rows):
            rows[at, 0] = op
            for column, each in enumerate(fields, 1):
                number = each
                if isinstance(each, Reg):
                    number = self._resolved(each)
                elif isinstance(each, Label):
                    number = each.row
                    moving[Label].append((at, column))
                elif isinstance(each, (Const, TextOf)):
                    number = each.at
                    moving[type(each)].append((at, column))
                elif isinstance(each, Ref):
                    number = each.tag
                    if isinstance(each.place, Const):
                        number |= each.place.at << 3
                        moving[Ref].append((at, column))
                    elif each.place is not None:
                        number |= self._resolved(each.place) << 3
                rows[at, column] = number
        words = max((each.base + each.size for each in self.functions.values()), default=len(self.global_words))
        moves = {kind: np.array(found, np.int32).reshape(-1, 2) for kind, found in moving.items()}
        return Code(
            rows,
            np.array(self.constants, np.int64),
            tuple(self.texts),
            entries,
            words,
            np.array(self.global_words, np.int64),
            moves[Label],
            moves[Const],
            moves[Ref],
            moves[TextOf],
        )


def roots_of(program: PEProgram) -> dict[str, tuple[str, ...]]:
    """The functions that a simulation starts, by name, with the letters of their arguments."""
    roots: dict[str, tuple[str, ...]] = {}
    for symbol in program.symbols.values():
        if symbol.kind == "function":
            roots[symbol.function] = symbol.parameters
    for handler in program.handlers:
        roots[handler.function] = ()
    for task in [*program.control_tasks.values(), *program.tasks.values()]:
        if task.kind != "teardown":
            roots[task.function] = task.argument
    return roots


def translate(program: PEProgram) -> Code:
    """Translate the code of a program.

    Raises:
        UntranslatableError: it has something in it that the translator does not know
    """
    module = Module(program)
    module.read()
    return module.finished({name: letters for name, letters in roots_of(program).items() if name in module.exports})
