"""Expressions of PE programs as instructions: numbers, conditions, memory."""

import ast
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cstool.csl.fast.code_values import (
    BOOL,
    FLOAT,
    INT,
    NOTHING,
    U64,
    VOID,
    Const,
    Label,
    Ref,
    Reg,
    Type,
    UntranslatableError,
    Val,
    joined,
    size_of,
    type_of,
    word_of,
)
from cstool.csl.fast.instructions import LETTERS, VIEWS, Op, Tag

if TYPE_CHECKING:
    from cstool.csl.fast.code import Module

_LEAST, _MOST = -(1 << 31), (1 << 31) - 1

_INTEGER: dict[type, tuple[Op, Op]] = {
    ast.Add: (Op.ADD, Op.ADDI), ast.Mult: (Op.MUL, Op.MULI), ast.BitAnd: (Op.AND, Op.ANDI), ast.BitOr: (Op.OR, Op.ORI),
    ast.BitXor: (Op.XOR, Op.XORI),
}  # fmt: skip
"""operators that may change sides: their instructions"""
_SHIFTS: dict[type, tuple[Op, Op]] = {ast.LShift: (Op.SHL, Op.SHLI), ast.RShift: (Op.SHR, Op.SHRI)}
_DIVISIONS: dict[type, tuple[Op, Op]] = {ast.FloorDiv: (Op.FDIV, Op.UDIV), ast.Mod: (Op.FMOD, Op.UMOD)}
_FLOATS: dict[type, Op] = {ast.Add: Op.FADD, ast.Sub: Op.FSUB, ast.Mult: Op.FMUL}
_FOLDED: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Eq: operator.eq, ast.NotEq: operator.ne,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_OPPOSITE: dict[type, type] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
}
_TURNED: dict[type, type] = {
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.GtE: ast.LtE,
}
_JUMPS: dict[type, Op] = {ast.Eq: Op.JEQ, ast.NotEq: Op.JNE, ast.Lt: Op.JLT, ast.LtE: Op.JLE}
_NUMBER_JUMPS: dict[type, Op] = {
    ast.Eq: Op.JEQI, ast.NotEq: Op.JNEI, ast.Lt: Op.JLTI, ast.LtE: Op.JLEI, ast.Gt: Op.JGTI, ast.GtE: Op.JGEI,
}  # fmt: skip
_FLOAT_JUMPS: dict[tuple[type, bool], Op] = {
    (ast.Eq, True): Op.JFEQ, (ast.Eq, False): Op.JFNE, (ast.NotEq, True): Op.JFNE, (ast.NotEq, False): Op.JFEQ,
    (ast.Lt, True): Op.JFLT, (ast.Lt, False): Op.JFNLT, (ast.LtE, True): Op.JFLE, (ast.LtE, False): Op.JFNLE,
}  # fmt: skip
_KNOWN = {"NAN": float("nan"), "INFINITY": float("inf")}
_FLOAT_VIEWS = (6, 7)
NONE = -1
"""no register"""


def fits(value: Any) -> bool:
    """Whether a number fits a field of an instruction."""
    return isinstance(value, int) and _LEAST <= value <= _MOST


class Expressions(ABC):
    """Part of a function: its expressions."""

    def __init__(self, module: "Module") -> None:
        self.module = module
        self.changed = False
        self.variables: dict[str, Type] = {}
        self.places: dict[str, Reg] = {}
        self.rows: list[tuple[int, list[Any]]] = []
        self.placed: list[tuple[int, Label]] = []
        self.free = self.most = 0
        self.back = Reg(self, 0)

    # --- what the other parts have ---

    @abstractmethod
    def emit(self, op: Op, *fields: Any) -> None:
        """Write an instruction."""

    @abstractmethod
    def place(self, label: Label) -> None:
        """Let a label be the next row."""

    @abstractmethod
    def temporary(self, type_: Type = INT) -> Reg:
        """Registers for a value that the statement alone needs."""

    @abstractmethod
    def assign(self, name: str, node: ast.expr) -> Val:
        """`name = value`."""

    @abstractmethod
    def call(self, node: ast.Call, into: Reg | None) -> Val:
        """A call."""

    # --- places of values ---

    def into(self, wanted: Reg | None, type_: Type = INT) -> Reg:
        """The wanted register, or new ones."""
        return self.temporary(type_) if wanted is None else wanted

    def move(self, to: Reg, value: Val, type_: Type) -> None:
        """Put a value into registers, as a type."""
        if value.parts is not None:
            assert isinstance(type_, tuple)
            for part, part_type in zip(value.parts, type_, strict=True):
                self.move(to, part, part_type)
                to = to.plus(size_of(part_type))
        elif value.const is not None and size_of(value.type) == 1 and value.place is None:
            const = float(value.const) if type_ == FLOAT else value.const
            if fits(const):
                self.emit(Op.LDI, to, int(const))
            else:
                self.emit(Op.LDK, to, self.module.constant([word_of(const)]))
        elif size_of(value.type) == 1 and isinstance(value.place, Reg):
            if type_ == FLOAT and value.type != FLOAT:
                self.emit(Op.UTOF if value.type == U64 else Op.ITOF, to, value.place)
            elif value.place != to:
                self.emit(Op.MOV, to, value.place)
        elif value.place is not None and value.place != to:
            self.emit(Op.COPY, to, self.ref(value), size_of(value.type))

    def register(self, value: Val, type_: Type | None = None) -> Reg:
        """The register of a scalar, which is loaded if need be."""
        wanted = value.type if type_ is None else type_
        if isinstance(value.place, Reg) and (wanted == value.type or FLOAT not in (wanted, value.type)):
            return value.place
        found = self.temporary()
        self.move(found, value, wanted)
        return found

    def placed_tuple(self, value: Val) -> Val:
        """A value with a place."""
        if value.parts is None:
            return value
        found = self.temporary(value.type)
        self.move(found, value, value.type)
        return Val(value.type, found)

    def ref(self, value: Val) -> Ref:
        """A value as a record."""
        assert value.place is not None
        return Ref(value.place, Tag.CONSTANT if isinstance(value.place, Const) else Tag.RECORD)

    def round32(self, to: Reg, value: Val) -> None:
        """Put a float into a register, rounded to float32."""
        self.emit(Op.RND32, to, self.register(value, FLOAT))

    # --- expressions ---

    def expr(self, node: ast.expr, into: Reg | None = None) -> Val:
        """The value of an expression; in a certain register if possible."""
        maker = getattr(self, f"_of_{type(node).__name__}", None)
        if maker is None:
            raise UntranslatableError(f"the expression {ast.unparse(node)[:60]!r}")
        found: Val = maker(node, into)
        return found

    def _of_Constant(self, node: ast.Constant, into: Reg | None) -> Val:  # noqa: N802, ARG002
        return Val(type_of(node.value), None, node.value)

    def _of_Name(self, node: ast.Name, into: Reg | None) -> Val:  # noqa: N802, ARG002
        name = node.id
        if name in self.variables:
            return Val(self.variables[name], self.places.get(name, self.back))
        if name in self.module.values:
            return self.module.values[name]
        if name in _KNOWN:
            return Val(FLOAT, None, _KNOWN[name])
        raise UntranslatableError(f"the name {name}")

    def _of_NamedExpr(self, node: ast.NamedExpr, into: Reg | None) -> Val:  # noqa: N802, ARG002
        return self.assign(node.target.id, node.value)

    def _of_Tuple(self, node: ast.Tuple, into: Reg | None) -> Val:  # noqa: N802, ARG002
        parts = []
        for each in node.elts:
            part = self.expr(each)
            if isinstance(part.place, Reg) and size_of(part.type) == 1 and not isinstance(each, ast.Name):
                part = Val(part.type, self.register(part))
            parts.append(part)
        return Val(tuple(part.type for part in parts), None, None, parts)

    def _of_UnaryOp(self, node: ast.UnaryOp, into: Reg | None) -> Val:  # noqa: N802
        if isinstance(node.op, ast.Not):
            return self.truth(node, into)
        value = self.expr(node.operand)
        if value.const is not None:
            const = -value.const if isinstance(node.op, ast.USub) else ~value.const
            return Val(type_of(const), None, const)
        to = self.into(into)
        if value.type == FLOAT:
            self.emit(Op.FNEG, to, self.register(value))
            return Val(FLOAT, to)
        if isinstance(node.op, ast.USub):
            self.emit(Op.RSUBI, to, self.register(value), 0)
        else:
            self.emit(Op.XORI, to, self.register(value), -1)
        return Val(value.type if value.type == U64 else INT, to)

    def _of_BinOp(self, node: ast.BinOp, into: Reg | None) -> Val:  # noqa: N802
        if isinstance(node.op, ast.Mult) and isinstance(node.left, ast.Tuple) and isinstance(node.right, ast.Constant):
            return self._repeated(node.left, ast.literal_eval(node.right))
        signed = self._signed(node)
        if signed is not None:
            inner, bits = signed
            value = self.expr(inner)
            if bits < 64 and value.const is None:
                to = self.into(into)
                self.emit(Op.SEXT, to, self.register(value), bits)
                return Val(INT, to)
            if value.const is None:
                return Val(INT, self.register(value))
        left = self._kept(self.expr(node.left), node.right)
        return self.operate(type(node.op), left, self.expr(node.right), into)

    def _kept(self, value: Val, later: ast.expr) -> Val:
        """A value that no part of a later expression changes: such a part is `name := ...`."""
        simple = isinstance(later, (ast.Constant, ast.Name))
        if not simple and isinstance(value.place, Reg) and size_of(value.type) == 1:
            named = [each for each in ast.walk(later) if isinstance(each, ast.NamedExpr)]
            if any(self.places.get(each.target.id) == value.place for each in named):
                copy = self.temporary()
                self.move(copy, value, value.type)
                return Val(value.type, copy)
        return value

    def _repeated(self, node: ast.Tuple, count: int) -> Val:
        value = self.expr(node.elts[0])
        if value.const is not None:
            return self.module.known((value.const,) * count)
        kept = Val(value.type, self.register(value)) if size_of(value.type) == 1 else value
        return Val((value.type,) * count, None, None, [kept] * count)

    def _signed(self, node: ast.BinOp) -> tuple[ast.expr, int] | None:
        """X and n of `(x + half & mask) - half`: the low n bits of x with their sign."""
        half = node.right.value if isinstance(node.right, ast.Constant) else None
        inner = node.left
        if not isinstance(node.op, ast.Sub) or not isinstance(half, int) or half <= 0 or half & (half - 1):
            return None
        if not isinstance(inner, ast.BinOp) or not isinstance(inner.op, ast.BitAnd):
            return None
        mask, sum_ = inner.right, inner.left
        if not isinstance(mask, ast.Constant) or mask.value != 2 * half - 1:
            return None
        if not isinstance(sum_, ast.BinOp) or not isinstance(sum_.op, ast.Add):
            return None
        if not isinstance(sum_.right, ast.Constant) or sum_.right.value != half:
            return None
        return sum_.left, half.bit_length()

    def operate(self, kind: type, left: Val, right: Val, into: Reg | None) -> Val:
        """The result of an operator of Python."""
        if left.const is not None and right.const is not None and kind in _FOLDED:
            const = _FOLDED[kind](left.const, right.const)
            return Val(type_of(const), None, const)
        if FLOAT in (left.type, right.type):
            if kind not in _FLOATS:
                raise UntranslatableError(f"the operator {kind.__name__} of floats")
            one, other = self.register(left, FLOAT), self.register(right, FLOAT)
            to = self.into(into)
            self.emit(_FLOATS[kind], to, one, other)
            return Val(FLOAT, to)
        wide = U64 in (left.type, right.type)
        if kind in _INTEGER:
            return self._ring(kind, left, right, wide, into)
        if kind is ast.Sub:
            return self._difference(left, right, wide, into)
        if kind in _SHIFTS:
            plain, number = _SHIFTS[kind]
            one = self.register(left)
            logical = left.type == U64 and kind is ast.RShift
            if right.const is not None:
                to = self.into(into)
                self.emit(Op.USHRI if logical else number, to, one, right.const)
                return Val(INT if logical and right.const else U64 if left.type == U64 else INT, to)
            other = self.register(right)
            to = self.into(into)
            self.emit(Op.USHR if logical else plain, to, one, other)
            return Val(U64 if left.type == U64 else INT, to)
        if kind in _DIVISIONS:
            one, other = self.register(left), self.register(right)
            to = self.into(into)
            self.emit(_DIVISIONS[kind][wide], to, one, other)
            return Val(U64 if wide and right.const is None else INT, to)
        raise UntranslatableError(f"the operator {kind.__name__}")

    def _ring(self, kind: type, left: Val, right: Val, wide: bool, into: Reg | None) -> Val:
        plain, number = _INTEGER[kind]
        if left.const is not None:
            left, right = right, left
        result: Type = U64 if wide else INT
        if kind is ast.BitAnd and right.const is not None and right.const >= 0:
            result = U64 if right.const > (1 << 63) - 1 else INT
        elif left.type == right.type == BOOL and kind in (ast.BitAnd, ast.BitOr, ast.BitXor):
            result = BOOL
        one = self.register(left)
        if right.const is not None and fits(int(right.const)):
            to = self.into(into)
            self.emit(number, to, one, int(right.const))
            return Val(result, to)
        other = self.register(right)
        to = self.into(into)
        self.emit(plain, to, one, other)
        return Val(result, to)

    def _difference(self, left: Val, right: Val, wide: bool, into: Reg | None) -> Val:
        result = U64 if wide else INT
        if right.const is not None and fits(-right.const):
            one = self.register(left)
            to = self.into(into)
            self.emit(Op.ADDI, to, one, -right.const)
            return Val(result, to)
        if left.const is not None and fits(left.const):
            other = self.register(right)
            to = self.into(into)
            self.emit(Op.RSUBI, to, other, left.const)
            return Val(result, to)
        one, other = self.register(left), self.register(right)
        to = self.into(into)
        self.emit(Op.SUB, to, one, other)
        return Val(result, to)

    def _of_IfExp(self, node: ast.IfExp, into: Reg | None) -> Val:  # noqa: N802
        if isinstance(node.orelse, ast.Call) and ast.unparse(node.orelse.func) == "outside":
            return self._checked(node)
        types = [self.type_alone(each) for each in (node.body, node.orelse)]
        type_ = joined(types[0], types[1])
        to = self.into(into if size_of(type_) == 1 else None, type_)
        otherwise, end = Label(), Label()
        self.jump(node.test, False, otherwise)
        single = size_of(type_) == 1 and FLOAT not in types
        kept = self.free
        self.move(to, self.expr(node.body, to if single else None), type_)
        self.emit(Op.JMP, end)
        self.place(otherwise)
        self.free = kept
        self.move(to, self.expr(node.orelse, to if single else None), type_)
        self.free = kept
        self.place(end)
        return Val(type_, to)

    def type_alone(self, node: ast.expr) -> Type:
        """The type of an expression, whose instructions are thrown away."""
        kept = self.rows, self.placed, self.free
        self.rows, self.placed = [], []
        type_ = self.expr(node).type
        self.rows, self.placed, self.free = kept
        return type_

    def _checked(self, node: ast.IfExp) -> Val:
        """`index if 0 <= index < extent else outside(pe, place, index, extent)`."""
        call = node.orelse
        assert isinstance(call, ast.Call)
        assert isinstance(node.test, ast.Compare)
        tested = node.test.left if len(node.test.ops) == 1 else node.test.comparators[0]
        self.expr(tested)
        value = self.expr(node.body)
        place, extent = ast.literal_eval(call.args[1]), ast.literal_eval(call.args[3])
        self.emit(Op.OUTSIDE, self.module.text(place), self.register(value), extent)
        return value

    # --- conditions ---

    def _of_Compare(self, node: ast.Compare, into: Reg | None) -> Val:  # noqa: N802
        return self.truth(node, into)

    def _of_BoolOp(self, node: ast.BoolOp, into: Reg | None) -> Val:  # noqa: N802
        return self.truth(node, into)

    def truth(self, node: ast.expr, into: Reg | None) -> Val:  # noqa: ARG002
        """A condition as a value."""
        to, end = self.temporary(), Label()
        self.emit(Op.LDI, to, 1)
        self.jump(node, True, end)
        self.emit(Op.LDI, to, 0)
        self.place(end)
        return Val(BOOL, to)

    def jump(self, node: ast.expr, wanted: bool, to: Label) -> None:
        """Jump where a condition is as wanted."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.jump(node.operand, not wanted, to)
        elif isinstance(node, ast.BoolOp):
            if isinstance(node.op, ast.And) != wanted:  # any of them decides
                for each in node.values:
                    self.jump(each, wanted, to)
                return
            past = Label()
            for each in node.values[:-1]:
                self.jump(each, not wanted, past)
            self.jump(node.values[-1], wanted, to)
            self.place(past)
        elif isinstance(node, ast.Compare):
            self._compare(node, wanted, to)
        else:
            value = self.expr(node)
            if value.const is not None:
                if bool(value.const) == wanted:
                    self.emit(Op.JMP, to)
            else:
                self.emit(Op.JT if wanted else Op.JF, self.register(value), to)

    def _compare(self, node: ast.Compare, wanted: bool, to: Label) -> None:
        if isinstance(node.ops[0], ast.In):
            self._among(node, wanted, to)
            return
        left = self._kept(self.expr(node.left), node.comparators[-1])
        past = Label()
        last = len(node.ops) - 1
        for at, (op, each) in enumerate(zip(node.ops, node.comparators, strict=True)):
            right = self.expr(each)
            if at == last:
                self.jump_if(type(op), left, right, wanted, to)
            else:
                self.jump_if(type(op), left, right, False, past if wanted else to)
            left = right
        self.place(past)

    def _among(self, node: ast.Compare, wanted: bool, to: Label) -> None:
        value = self.expr(node.left)
        among = node.comparators[0]
        if not isinstance(among, ast.Tuple):
            raise UntranslatableError(f"the condition {ast.unparse(node)[:60]!r}")
        found = Label()
        for each in among.elts:
            self.jump_if(ast.Eq, value, self.expr(each), True, to if wanted else found)
        if not wanted:
            self.emit(Op.JMP, to)
        self.place(found)

    def jump_if(self, kind: type, left: Val, right: Val, wanted: bool, to: Label) -> None:
        """Jump where a comparison is as wanted."""
        if left.const is not None and right.const is not None:
            if bool(_FOLDED[kind](left.const, right.const)) == wanted:
                self.emit(Op.JMP, to)
            return
        if FLOAT in (left.type, right.type):
            if kind in (ast.Gt, ast.GtE):
                kind, left, right = _TURNED[kind], right, left
            self.emit(_FLOAT_JUMPS[kind, wanted], self.register(left, FLOAT), self.register(right, FLOAT), to)
            return
        if kind not in _TURNED:
            raise UntranslatableError(f"the comparison {kind.__name__}")
        if not wanted:
            kind = _OPPOSITE[kind]
        if left.const is not None:
            kind, left, right = _TURNED[kind], right, left
        wide = U64 in (left.type, right.type) and kind not in (ast.Eq, ast.NotEq)
        if right.const is not None and fits(int(right.const)) and not wide:
            self.emit(_NUMBER_JUMPS[kind], self.register(left), int(right.const), to)
            return
        if kind in (ast.Gt, ast.GtE):
            kind, left, right = _TURNED[kind], right, left
        jump = _JUMPS[kind]
        if wide:
            jump = Op.JULT if jump == Op.JLT else Op.JULE
        self.emit(jump, self.register(left), self.register(right), to)

    # --- memory ---

    def _of_Subscript(self, node: ast.Subscript, into: Reg | None) -> Val:  # noqa: N802
        base = node.value
        if isinstance(base, ast.Name):
            if base.id in VIEWS:
                return self._load(VIEWS.index(base.id), node.slice, into)
            if base.id == "HALVES" and isinstance(node.slice, ast.Subscript):
                return self._load(VIEWS.index("F16"), node.slice.slice, into)
            if base.id == "R":
                name = ast.unparse(node)
                return Val(FLOAT, self.places.get(name, self.back))
            if base.id == "TASKS":
                return self._task_id(node.slice)
        return self._element(self.expr(base), node.slice)

    def _task_id(self, node: ast.expr) -> Val:
        pointer, to, end = self.register(self.expr(node)), self.temporary(), Label()
        for known, task in self.module.tasks.items():
            self.emit(Op.LDI, to, task)
            self.emit(Op.JEQI, pointer, known, end)
        self.emit(Op.FAIL, self.module.text(("a pointer to a task points to a task, got another", "")))
        self.place(end)
        return Val(INT, to)

    def _element(self, value: Val, index: ast.expr) -> Val:
        types = value.type
        if not isinstance(types, tuple):
            raise UntranslatableError(f"an element of {types}")
        at = self.expr(index)
        if at.const is not None:
            if not -len(types) <= at.const < len(types):
                raise UntranslatableError("an index outside a tuple")
            part = int(at.const) % len(types)
            if value.parts is not None:
                return value.parts[part]
            before = size_of(types[:part])
            if isinstance(value.const, tuple):
                return self.module.known(value.const[part])
            assert value.place is not None
            return Val(types[part], value.place.plus(before))
        if not types or len(set(types)) > 1:
            raise UntranslatableError(f"an element of {types}")
        value = self.placed_tuple(value)
        words = size_of(types[0])
        number = self.register(at)
        to = self.temporary(types[0])
        self.emit(Op.PICK, to, self.ref(value), number, len(types), words)
        return Val(types[0], to)

    def place_element(self, target: ast.Subscript, node: ast.expr) -> None:
        """`variable[index] = value` of a list."""
        base = self.expr(target.value)
        if not isinstance(base.type, tuple) or not isinstance(base.place, Reg) or len(set(base.type)) != 1:
            raise UntranslatableError(f"the assignment to {ast.unparse(target)[:60]!r}")
        value, index = self.expr(node), self.register(self.expr(target.slice))
        kept = self.temporary(base.type[0])
        self.move(kept, value, base.type[0])
        self.emit(Op.PLACE, self.ref(base), kept, index, len(base.type), size_of(base.type[0]))

    def units(self, node: ast.expr) -> tuple[Reg | int, int]:
        """An index of memory: a register, or none, and a number behind it."""
        number, terms = 0, []
        pending = [node]
        while pending:
            each = pending.pop()
            if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Add):
                pending += [each.right, each.left]
            elif isinstance(each, ast.Constant) and isinstance(each.value, int):
                number += each.value
            else:
                terms.append(each)
        if not fits(number):
            raise UntranslatableError("an address beyond 32 bits")
        if not terms:
            return NONE, number
        found = self.expr(terms[0])
        for each in terms[1:]:
            found = self.operate(ast.Add, self._kept(found, each), self.expr(each), None)
        return self.register(found), number

    def _load(self, view: int, index: ast.expr, into: Reg | None) -> Val:
        if isinstance(index, ast.Slice):
            raise UntranslatableError("a slice of memory")
        register, number = self.units(index)
        to = self.into(into)
        self.emit(Op.LD, to, register, number, view)
        return Val(FLOAT if view in _FLOAT_VIEWS else INT, to)

    def load_slice(self, view: int, node: ast.Slice) -> Val:
        """`tuple(view[a:a + n])`."""
        assert node.lower is not None
        upper = node.upper
        assert isinstance(upper, ast.BinOp)
        assert isinstance(upper.right, ast.Constant)
        register, number = self.units(node.lower)
        type_ = FLOAT if view in _FLOAT_VIEWS else INT
        types: tuple[Type, ...] = (type_,) * int(ast.literal_eval(upper.right))
        first = self.temporary(types)
        for at in range(len(types)):
            self.emit(Op.LD, first.plus(at), register, number + at, view)
        return Val(types, first)

    def store(self, view: int, index: ast.expr, node: ast.expr) -> None:
        """`view[index] = value`; it wraps, or is rounded, to the view's type."""
        bits = (8, 8, 16, 16, 32, 32, 0, 0)[view]
        if bits and isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
            mask = node.right
            if isinstance(mask, ast.Constant) and mask.value == (1 << bits) - 1:
                node = node.left
        # Python evaluates the value first.
        value = self.register(self.expr(node), FLOAT if not bits else None)
        register, number = self.units(index)
        self.emit(Op.ST, value, register, number, view)

    def store_bytes(self, target: ast.Slice, node: ast.expr) -> None:
        """`U8[a:a + n] = bytes`."""
        if isinstance(node, ast.Call):
            content = bytes(ast.literal_eval(node.args[0]))
        else:
            content = ast.literal_eval(node)
        assert target.lower is not None
        register, number = self.units(target.lower)
        padded = content + bytes(-len(content) % 8)
        words = [int.from_bytes(padded[at : at + 8], "little", signed=True) for at in range(0, len(padded), 8)]
        self.emit(Op.BYTES, register, number, self.module.constant(words), len(content))

    def letter(self, node: ast.expr) -> int:
        """The number of the view of a letter."""
        return LETTERS.index(ast.literal_eval(node))

    def _of_Attribute(self, node: ast.Attribute, into: Reg | None) -> Val:  # noqa: N802
        fields = ("x", "y", "fabric_x", "fabric_y")
        if isinstance(node.value, ast.Name) and node.value.id == "pe" and node.attr in fields:
            to = self.into(into)
            self.emit(Op.PE, to, fields.index(node.attr))
            return Val(INT, to)
        value = self.expr(node.value)
        if node.attr == "width" and value.type in ("Mem1d", "Mem4d"):
            if value.const is not None:
                return Val(INT, None, value.const.width)
            assert isinstance(value.place, Reg)
            return Val(INT, value.place.plus(4))
        raise UntranslatableError(f"the field {ast.unparse(node)[:60]!r}")

    def _of_Call(self, node: ast.Call, into: Reg | None) -> Val:  # noqa: N802
        return self.call(node, into)

    def _of_YieldFrom(self, node: ast.YieldFrom, into: Reg | None) -> Val:  # noqa: N802
        if not isinstance(node.value, ast.Call):
            raise UntranslatableError(f"the expression {ast.unparse(node)[:60]!r}")
        return self.call(node.value, into)


__all__ = ["NONE", "NOTHING", "VOID", "Expressions", "fits"]
