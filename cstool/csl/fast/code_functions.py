"""A function of a PE program as instructions: its statements."""

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cstool.csl.fast.code_calls import Calls
from cstool.csl.fast.code_values import (
    FLOAT,
    INT,
    VOID,
    Label,
    Reg,
    Type,
    UntranslatableError,
    Val,
    joined,
    size_of,
)
from cstool.csl.fast.instructions import ROW, VIEWS, Op

if TYPE_CHECKING:
    from cstool.csl.fast.code import Module

_PASSES = 8
"""passes over a function until the types of its variables are known: each makes at least one of them wider"""


class Function(Calls):
    """One function, for arguments of certain types.

    Args:
        module: its program
        node: its text in Python
        types: of its arguments

    Attributes:
        back: the register that keeps where its caller goes on
        outcome: the first register of its result
        parameters: the first register of each argument
        result: type of the result
        calls: the functions that it calls
        base, size: its registers, within a PE's region
        done: whether it is translated
    """

    def __init__(self, module: "Module", node: ast.FunctionDef, types: tuple[Type, ...]) -> None:
        super().__init__(module)
        self.node = node
        self.name = node.name
        names = [each.arg for each in node.args.args]
        if len(names) != len(types):
            raise UntranslatableError(f"{node.name}() takes {len(names)} arguments, got {len(types)}")
        self._names = names
        self.variables = dict(zip(names, types, strict=True))
        self.back = Reg(self, 0)
        self.outcome = Reg(self, 1)
        self.parameters: list[Reg] = []
        self.result: Type | None = None
        self.entry = Label()
        self.calls: dict[int, Function] = {}
        self.base = self.size = 0
        self.done = False

    def translate(self) -> None:
        """Translate until the types of all variables are known, then keep the rows."""
        for _ in range(_PASSES):
            self.changed = False
            self._pass()
            if not self.changed:
                break
        else:
            raise UntranslatableError(f"{self.name}(): types of its variables")
        self.result = VOID if self.result is None else self.result
        rows = self.module.rows
        self.entry.row = len(rows)
        for row, label in self.placed:
            label.row = self.entry.row + row
        rows += self.rows
        self.size = self.most
        self.done = True

    def _pass(self) -> None:
        self.rows: list[tuple[int, list[Any]]] = []
        self.placed: list[tuple[int, Label]] = []
        self.loops: list[tuple[Label, Label]] = []
        self.places: dict[str, Reg] = {}
        at = 1 + size_of(self.result or VOID)
        for name, type_ in self.variables.items():
            self.places[name] = Reg(self, at)
            at += size_of(type_)
        self.parameters = [self.places[name] for name in self._names]
        self.free = self.most = at
        if self._block(self.node.body):
            self.note_result(VOID)
            self.emit(Op.RET, self.back)

    # --- statements: whether the code behind one can be reached ---

    def _block(self, body: Sequence[ast.stmt]) -> bool:
        return all(self._statement(each) for each in body)

    def _statement(self, node: ast.stmt) -> bool:
        kept = self.free
        writer = getattr(self, f"_do_{type(node).__name__}", None)
        if writer is None:
            raise UntranslatableError(f"the statement {ast.unparse(node)[:60]!r}")
        falls: bool = writer(node)
        self.free = kept
        return falls

    def _do_Pass(self, node: ast.Pass) -> bool:  # noqa: N802, ARG002
        return True

    _do_Nonlocal = _do_Pass  # noqa: N815

    def _do_Expr(self, node: ast.Expr) -> bool:  # noqa: N802
        self.expr(node.value)
        return True

    def _do_Return(self, node: ast.Return) -> bool:  # noqa: N802
        if node.value is None:
            self.note_result(VOID)
        else:
            value = self.expr(node.value)
            self.note_result(value.type)
            if self.result is not None and self.result != VOID:
                self.move(self.outcome, value, self.result)
        self.emit(Op.RET, self.back)
        return False

    def note_result(self, type_: Type) -> None:
        """Note the type of a result."""
        if type_ == VOID and self.result not in (None, VOID):
            return  # the end of a function whose 'while True' returns
        wider = type_ if self.result in (None, VOID) else joined(self.result, type_)
        if wider != self.result:
            self.result, self.changed = wider, True

    def _do_Assign(self, node: ast.Assign) -> bool:  # noqa: N802
        (target,) = node.targets
        if isinstance(target, ast.Name):
            self.assign(target.id, node.value)
        elif isinstance(target, ast.Subscript):
            self._store(target, node.value)
        else:
            raise UntranslatableError(f"the assignment {ast.unparse(node)[:60]!r}")
        return True

    def _store(self, target: ast.Subscript, value: ast.expr) -> None:
        base = target.value
        if isinstance(base, ast.Name) and base.id == "R":
            name = ast.unparse(target)
            rounded = self.expr(value)
            self.note_variable(name, FLOAT)
            self.round32(self.places.get(name, Reg(self, 0)), rounded)
        elif isinstance(base, ast.Name) and base.id in VIEWS:
            if isinstance(target.slice, ast.Slice):
                self.store_bytes(target.slice, value)
            else:
                self.store(VIEWS.index(base.id), target.slice, value)
        elif ast.unparse(base).startswith("pe.fifos["):
            inner = base.value  # type: ignore[attr-defined]
            number, written = ast.literal_eval(inner.slice), ast.literal_eval(target.slice)
            self.emit(Op.FIFO_LENGTH, number, int(written), self.register(self.expr(value)))
        else:
            self.place_element(target, value)

    def _do_AugAssign(self, node: ast.AugAssign) -> bool:  # noqa: N802
        if ast.unparse(node.target) != "pe.cycles" or not isinstance(node.op, ast.Add):
            raise UntranslatableError(f"the statement {ast.unparse(node)[:60]!r}")
        value = self.expr(node.value)
        if value.const is not None:
            self.emit(Op.CYC, value.const)
        else:
            self.emit(Op.CYCR, self.register(value))
        return True

    def _do_If(self, node: ast.If) -> bool:  # noqa: N802
        if self._starts(node):
            return True
        otherwise, end = Label(), Label()
        self.jump(node.test, False, otherwise)
        falls = self._block(node.body)
        if falls and node.orelse:
            self.emit(Op.JMP, end)
        self.place(otherwise)
        always = isinstance(node.test, ast.Constant) and bool(node.test.value)
        if node.orelse:
            falls = self._block(node.orelse) or falls
        elif not always:
            falls = True
        self.place(end)
        return falls

    def _starts(self, node: ast.If) -> bool:
        """`if pe.start(...): yield from pe.pause()`, which is one instruction."""
        test = node.test
        if not isinstance(test, ast.Call) or ast.unparse(test.func) != "pe.start":
            return False
        if [ast.unparse(each) for each in node.body] != ["yield from pe.pause()"] or node.orelse:
            raise UntranslatableError("pe.start() without pe.pause()")
        self.start(test)
        return True

    def _do_While(self, node: ast.While) -> bool:  # noqa: N802
        begin, end = Label(), Label()
        self.place(begin)
        self.jump(node.test, False, end)
        self.loops.append((begin, end))
        before = len(self.rows)
        if self._block(node.body):
            self.emit(Op.JMP, begin)
        self.loops.pop()
        leaves = any(end in fields for _, fields in self.rows[before:])
        self.place(end)
        always = isinstance(node.test, ast.Constant) and bool(node.test.value)
        return leaves or not always

    def _do_For(self, node: ast.For) -> bool:  # noqa: N802
        turns, target, index = node.iter, node.target, None
        if isinstance(target, ast.Tuple) and isinstance(turns, ast.Call) and ast.unparse(turns.func) == "enumerate":
            index, target = target.elts
            turns = turns.args[0]
        if not isinstance(target, ast.Name) or not isinstance(turns, ast.Call) or ast.unparse(turns.func) != "range":
            raise UntranslatableError(f"the loop {ast.unparse(node)[:60]!r}")
        state = self.span(turns)
        self.note_variable(target.id, INT)
        variable = self.places.get(target.id, self.back)
        begin, again, end = Label(), Label(), Label()
        counter = None
        if index is not None:
            assert isinstance(index, ast.Name)
            self.note_variable(index.id, INT)
            counter = self.places.get(index.id, self.back)
            self.emit(Op.LDI, counter, 0)
        self.emit(Op.FORINIT, state, variable, end)
        self.place(begin)
        self.loops.append((again, end))
        hidden = None
        if counter is not None:  # a body never changes it, so that it may count itself
            hidden = counter
        self._block(node.body)
        self.loops.pop()
        self.place(again)
        if hidden is not None:
            self.emit(Op.ADDI, hidden, hidden, 1)
        self.emit(Op.FORNEXT, state, variable, begin)
        self.place(end)
        return True

    def _do_Break(self, node: ast.Break) -> bool:  # noqa: N802, ARG002
        self.emit(Op.JMP, self.loops[-1][1])
        return False

    def _do_Continue(self, node: ast.Continue) -> bool:  # noqa: N802, ARG002
        self.emit(Op.JMP, self.loops[-1][0])
        return False

    # --- rows ---

    def emit(self, op: Op, *fields: Any) -> None:
        """Write an instruction."""
        self.rows.append((int(op), [*fields, *[0] * (ROW - 1 - len(fields))]))

    def place(self, label: Label) -> None:
        """Let a label be the next row."""
        self.placed.append((len(self.rows), label))

    def temporary(self, type_: Type = INT) -> Reg:
        """Registers for a value that the statement alone needs."""
        found = Reg(self, self.free)
        self.free += size_of(type_)
        self.most = max(self.most, self.free)
        return found

    # --- variables ---

    def note_variable(self, name: str, type_: Type) -> None:
        """Note that a variable has values of a type."""
        wider = joined(self.variables.get(name), type_)
        if wider != self.variables.get(name):
            self.variables[name], self.changed = wider, True

    def assign(self, name: str, node: ast.expr) -> Val:
        """`name = value`."""
        if name in self.module.globals:
            value = self.expr(node)
            known = self.module.values[name]
            if joined(known.type, value.type) != known.type:
                raise UntranslatableError(f"the variable {name} of types {known.type} and {value.type}")
            self.move(self.module.globals[name], value, known.type)
            return known
        type_ = self.variables.get(name)
        into = self.places.get(name)
        value = self.expr(node, into if type_ is not None and size_of(type_) == 1 else None)
        if value.type == VOID and value.const is None:
            value = Val(INT, None, 0)  # undefined
        self.note_variable(name, value.type)
        if into is not None and not self.changed:
            self.move(into, value, self.variables[name])
        return Val(self.variables[name], self.places.get(name, self.back))
