"""Shared by all parts of the emitter: a piece of Python with its CSL type, and the function that is being written.

`Code` is an expression: known at compile time, or text. Text has no side effect unless `calls` says so. Operations that
need statements in Python (rounding to float32, an `if` with statements in it) are written as lines before the line that
uses them, and `Frame.ordered` keeps the order of evaluation.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from cstool.csl.language import conversions, costs, evaluate, syntax, types, values
from cstool.csl.language.evaluate import RunTime, Scope
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import ArrayType, EnumType, FloatType, FunctionType, IntType, StructType, Type
from cstool.csl.language.values import Value

if TYPE_CHECKING:
    from cstool.csl.language.emit import ProgramText


ATOM, PRODUCT, SUM, SHIFT, AND, XOR, OR, COMPARED, NEGATED, BOTH, EITHER, LOWEST = range(12)
"""precedences of Python's operators, the tightest first"""


@dataclass(frozen=True, slots=True)
class Code:
    """An expression.

    Args:
        type: type in CSL
        text: text in Python; "" where `value` is known
        value: data, where known at compile time
        known: whether `value` is known
        low, high: bounds of an integer, where they are closer than its type's
        level: precedence of the text, `ATOM` to `LOWEST`
        loose: of an integer that wraps: the unwrapped text, its level, its bounds
        reads: whether a store between its evaluation and its use could change it
        calls: whether its evaluation has side effects
        raw: whether it is a float32 not yet rounded
        fields: fields of an anonymous struct, some known at run time alone
    """

    type: Type
    text: str = ""
    value: Any = None
    known: bool = False
    low: int | None = None
    high: int | None = None
    level: int = 0
    loose: tuple[str, int, int, int] | None = None
    reads: bool = False
    calls: bool = False
    raw: bool = False
    fields: "dict[str, Code] | None" = None

    @property
    def operand(self) -> str:
        """The text, in parentheses unless it is an atom."""
        return self.at(ATOM)

    def at(self, level: int) -> str:
        """The text for a place that takes operators that bind at least as tightly as `level`."""
        text = self.python
        return text if self.known or self.level <= level else f"({text})"

    @property
    def python(self) -> str:
        """The text."""
        return literal(self.type, self.value) if self.known else self.text

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest value of an integer."""
        if self.known:
            return int(self.value), int(self.value)
        least, most = type_bounds(self.type)
        return (least if self.low is None else self.low), (most if self.high is None else self.high)

    @property
    def pair(self) -> Value:
        """Type and data of a known value."""
        return self.type, self.value


def in_variable(code: Code, name: str) -> Code:
    """An evaluated code, by the name that keeps its value."""
    return replace(code, text=name, level=ATOM, loose=None, raw=False, reads=False, calls=False)


def retyped(code: Code, type_: Type, **more: Any) -> Code:
    """The same Python as a value of another type; its unwrapped text is dropped."""
    if isinstance(code.type, IntType) and isinstance(type_, IntType) and not code.known and not more:
        low, high = code.bounds
        more = {"low": low, "high": high}
    return replace(code, type=type_, loose=None, **more)


def known(value: Value) -> Code:
    """A value of compile time as code."""
    return Code(value[0], value=value[1], known=True)


NOTHING = known(values.VOID)
NEVER = types.BasicType("noreturn")
"""The type of a branch that never ends: `return`, `break`."""


def type_bounds(type_: Type) -> tuple[int, int]:
    """The least and the largest value of a type that is an integer in compiled code."""
    if isinstance(type_, IntType):
        return type_.least, type_.most
    if isinstance(type_, EnumType):
        return type_.tag.least, type_.tag.most
    return (0, 1) if type_ == types.BOOL else (0, 0xFFFF)


def is_raw(type_: Type) -> bool:
    """Whether a struct's value is one unsigned integer, its bits, in compiled code; others are tuples."""
    return isinstance(type_, StructType) and (type_.is_packed or type_.is_union)


def raw_bits(type_: StructType) -> int:
    """Bits of the integer for a packed struct or a union."""
    return type_.bits if type_.is_packed else 8 * type_.size


def literal(type_: Type, data: Any) -> str:
    """Known data as Python text."""
    if data is None and isinstance(type_, StructType | ArrayType):
        data = values.zero(type_)
    if isinstance(type_, ArrayType):
        items = [literal(type_.element, each) for each in data]
        if len(items) > 4 and len(set(items)) == 1:
            return f"({items[0]},) * {len(items)}"
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if isinstance(type_, StructType):
        if is_raw(type_):
            return hex(int.from_bytes(values.to_bytes(type_, data), "little"))
        items = [literal(*data[name]) for name, _ in type_.fields]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if isinstance(data, float):
        if math.isfinite(data):
            return repr(data)
        return "NAN" if data != data else ("INFINITY" if data > 0 else "-INFINITY")
    return _named(data) if hasattr(data, "_field_defaults") else repr(data)


def _named(data: Any) -> str:
    """An operand of `fabric.dsd`, without its defaults."""
    parts = []
    for name, value in data._asdict().items():
        if name not in data._field_defaults or value != data._field_defaults[name]:
            parts.append(f"{name}={literal(types.VOID, value)}")
    return f"{type(data).__name__}({', '.join(parts)})"


@dataclass(slots=True)
class Local:
    """A name of a function that is known at run time alone.

    Args:
        type: type of its value
        place: place of its declaration
        code: its value, where it does not change and is not in SRAM
        variable: its variable in Python, for a `var`
        address: its address in SRAM [bytes], if it is there
        const: whether it cannot be assigned to
    """

    type: Type
    place: Place
    code: Code | None = None
    variable: str | None = None
    address: int | None = None
    const: bool = True


@dataclass(slots=True)
class Loop:
    """A loop or labeled block that `break` and `continue` may leave, outermost first in `Frame.loops`.

    Args:
        label: its label in CSL
        block: whether it is a labeled block, which only `break :label` can leave
        step: writes the step that `continue` does first
        variable: variable for the value of a labeled block
        want: the type that the value must have; None: not known yet
        broken: whether a `break` leaves it
        flags: variables that tell that an inner loop was left in order to leave or continue this one
        codes: values of its breaks
    """

    label: str | None
    block: bool = False
    step: Callable[[], None] | None = None
    variable: str | None = None
    want: Type | None = None
    broken: bool = False
    flags: dict[str, str] = field(default_factory=dict)
    codes: list[Code] = field(default_factory=list)


class Frame:
    """A function that is being written.

    Args:
        program: the state shared by all functions
        module: the module of the function
        name: its name in Python
        place: place of the function
        result: the type of its result
    """

    def __init__(self, program: "ProgramText", scope: Scope, name: str, place: Place, result: Type) -> None:
        self.program = program
        self.scope = Scope(scope.module, scope, self._type_of)
        self.name = name
        self.place = place
        self.result = result
        self.locals: list[dict[str, Local]] = [{}]
        self.lines: list[str] = []
        self.indent = 0
        self.pending = 0
        self.instructions = 0
        self.waits = False
        self.loops: list[Loop] = []
        self.names: set[str] = set()
        self.objects: set[str] = set()
        self.escaping: set[str] = set()
        self.effects = 0
        self.writes = 0
        self.capturing = 0

    def _type_of(self, node: syntax.Expression, scope: Scope) -> Type:
        kept, self.scope = self.scope, scope
        try:
            return self.captured(lambda: expression(self, node))[0].type
        finally:
            self.scope = kept

    # --- text ---

    def line(self, text: str, *, effect: bool = True) -> None:
        """Write a line; without `effect` it changes nothing that other code reads."""
        self.lines.append("    " * self.indent + text)
        self.writes += 1
        self.effects += effect

    def cost(self, cycles: int, instructions: int = 1) -> None:
        """Count the cost of the code just made."""
        self.pending += cycles
        self.instructions += instructions

    def flush(self) -> None:
        """Write the counted cycles: before any look at the clock, and where a block ends."""
        if not self.pending:
            return
        head = "    " * self.indent + "pe.cycles += "
        if self.lines and self.lines[-1].startswith(head) and self.lines[-1][len(head) :].isdecimal():
            self.pending += int(self.lines.pop()[len(head) :])
        self.lines.append(f"{head}{self.pending}")
        self.pending = 0

    def tick(self) -> None:
        """Likewise, before a call in an expression; in `captured` code, the caller of `captured` counts."""
        if not self.capturing:
            self.flush()

    @contextmanager
    def indented(self) -> Iterator[None]:
        """Write an inner block, `pass` if it is empty; its cost is counted inside.

        Callers flush before they write the head line of the block: behind it, cycles would stand outside the block.
        """
        self.indent += 1
        before = len(self.lines)
        yield
        self.flush()
        if len(self.lines) == before:
            self.line("pass", effect=False)
        self.indent -= 1

    @contextmanager
    def block(self) -> Iterator[None]:
        """Open a scope for names of an inner block."""
        outer = self.scope
        self.scope = Scope(outer.module, outer)
        self.locals.append({})
        yield
        self.locals.pop()
        self.scope = outer

    def captured(self, make: Callable[[], Code]) -> tuple[Code, list[str], int]:
        """The result of `make`, the lines that it wrote (taken away again), and their cost."""
        lines, pending = self.lines, self.pending
        self.lines, self.pending = [], 0
        self.capturing += 1
        try:
            return make(), self.lines, self.pending
        finally:
            self.capturing -= 1
            self.lines, self.pending = lines, pending

    def fresh(self, name: str) -> str:
        """An unused Python variable of this function, named `name` if possible."""
        chosen = self.program.free_name(name, self.names)
        self.names.add(chosen)
        self.program.local_names.add(chosen)
        return chosen

    # --- names ---

    def find(self, name: str) -> Local | None:
        """A local by its name."""
        for names in reversed(self.locals):
            if name in names:
                return names[name]
        return None

    def declare(self, name: str, what: Local | Value) -> None:
        """Declare a name in the innermost block.

        Raises:
            CslError: the block has the name already.
        """
        if isinstance(what, Local):
            self.scope.declare(name, RunTime(what.type, what.address), what.place)
            self.locals[-1][name] = what
        else:
            self.scope.declare(name, what, None)

    # --- values ---

    def variable(self, code: Code, hint: str) -> Code:
        """A code's value in a variable of its own, so that it is evaluated here and once."""
        code = self.settled(code)
        if code.known or code.fields is not None:
            return code
        name = self.fresh(hint)
        self.line(f"{name} = {code.text}", effect=code.calls)
        return in_variable(code, name)

    def settled(self, code: Code) -> Code:
        """A float32 rounded, unless it is: through a cell of a float32 array, the fastest way in Python."""
        if not code.raw:
            return code
        cell = f"R[{self.program.cell()}]"
        self.line(f"{cell} = {code.text}", effect=code.calls)
        return in_variable(code, cell)

    def ordered(self, makers: Sequence[Callable[[], Code]]) -> list[Code]:
        """Codes in their order of evaluation: a value that lines of a later one could change is kept first."""
        made: list[tuple[Code, int]] = []
        for make in makers:
            writes, effects = self.writes, self.effects
            code = self.settled(make())
            if self.writes > writes:
                for at, (earlier, position) in enumerate(made):
                    if earlier.calls or (earlier.reads and self.effects > effects):
                        made[at] = self._kept(earlier, position), position
            made.append((code, len(self.lines)))
        return [code for code, _ in made]

    def made(self, nodes: Sequence[syntax.Expression], wants: Sequence[Type | None] = ()) -> list[Code]:
        """Expressions in their order; `wants` are hints for the first of them."""
        hints = [*wants, *[None] * len(nodes)]
        return self.ordered([partial(expression, self, node, hint) for node, hint in zip(nodes, hints, strict=False)])

    def _kept(self, code: Code, position: int) -> Code:
        name = self.fresh("kept")
        self.lines.insert(position, "    " * self.indent + f"{name} = {code.text}")
        return in_variable(code, name)

    # --- places and errors ---

    def where(self, place: Place) -> str:
        """A place for compiled code, quoted."""
        return repr(str(place))


# --- conversions that change no bits ---


def converted(code: Code, target: Type, place: Place, what: str = "the value") -> Code:
    """`code` converted to `target` implicitly.

    Raises:
        CslError: it does not convert.
    """
    source = code.type
    if source is target or target == types.ANYTYPE or source == NEVER:
        return code
    if code.known:
        return known(conversions.coerce(code.pair, target, place, what))
    if code.fields is not None and isinstance(target, StructType | ArrayType):
        return _struct_of(code.fields, target, place, what)
    if source == target:
        return code
    if source == types.STRUCT or not conversions.coerces(source, target):
        raise conversions.mismatch(what, target, str(source), source, place)
    if isinstance(target, FloatType) and types.is_int(source):
        return cast(code, target)
    return retyped(code, target)


def _struct_of(fields: dict[str, Code], target: Type, place: Place, what: str) -> Code:
    """A struct or array from fields, some known at run time alone."""
    if isinstance(target, ArrayType):
        if len(fields) != target.count:
            raise CslError(f"{what} must have {target.count} elements ({target}), got {len(fields)}", place)
        items = [
            converted(each, target.element, place, f"element {at} of {what}") for at, each in enumerate(fields.values())
        ]
        return tuple_of(target, items)
    assert isinstance(target, StructType)
    names = [name for name, _ in target.fields]
    for name in fields:
        if name not in names:
            raise CslError(f"{what}: {target} has the fields {', '.join(names)}, got .{name}", place)
    if target.is_union and len(fields) != 1:
        raise CslError(f"{what}: a union is given one of its fields, got {len(fields)}", place)
    defaults = dict(target.defaults)
    items = []
    for name, type_ in target.fields:
        if name in fields:
            items.append(converted(fields[name], type_, place, f"{what}, field '{name}'"))
        elif name in defaults:
            items.append(known((type_, defaults[name])))
        elif not target.is_union:
            raise CslError(f"{what}: {target} needs the field '{name}', which has no default", place)
    if not is_raw(target):
        return tuple_of(target, items)
    if target.is_union:
        return retyped(to_bits(items[0]), target)
    parts = []
    for (name, _), item in zip(target.fields, items, strict=True):
        shift = target.offset(name)
        parts.append(f"{to_bits(item).at(SHIFT)} << {shift}" if shift else to_bits(item).at(OR))
    return joined(target, " | ".join(parts), items, level=OR)


def joined(type_: Type, text: str, parts: Sequence[Code], *, level: int = LOWEST, **more: Any) -> Code:
    """Code made of other codes."""
    return Code(
        type_,
        text,
        level=level,
        reads=any(part.reads for part in parts),
        calls=any(part.calls for part in parts),
        **more,
    )


def tuple_of(type_: Type, items: Sequence[Code]) -> Code:
    """A struct or an array from its elements."""
    text = ", ".join(item.python for item in items)
    return joined(type_, f"({text}{',' if len(items) == 1 else ''})", items, level=0)


def wrapped(type_: IntType, text: str, low: int, high: int, parts: Sequence[Code], *, level: int = LOWEST) -> Code:
    """An integer, `text` modulo 2**bits; `low` and `high` are bounds before that.

    An operation that wraps again may take the text unwrapped: sums and products are the same modulo 2**bits.
    """
    if type_.least <= low and high <= type_.most:
        return joined(type_, text, parts, low=low, high=high, level=level)
    mask = hex((1 << type_.bits) - 1)
    loose = (text, level, low, high)
    if not type_.signed or not type_.bits:
        inner = text if level <= AND else f"({text})"
        return joined(type_, f"{inner} & {mask}", parts, level=AND, loose=loose)
    half = hex(1 << (type_.bits - 1))
    inner = text if level <= SUM else f"({text})"
    return joined(type_, f"({inner} + {half} & {mask}) - {half}", parts, level=SUM, loose=loose)


def cast(code: Code, target: Type) -> Code:
    """`@as` between numbers and bool, both at run time types; the check is `conversions.check_cast`."""
    source = code.type
    if source == target:
        return code
    low, high = code.bounds if not isinstance(source, FloatType) else (0, 0)
    if target == types.BOOL:
        return joined(target, f"{code.at(OR)} != 0", [code], level=COMPARED)
    if isinstance(target, IntType):
        if isinstance(source, FloatType):
            widest = types.int_type(max(target.bits, 32), target.signed)
            text = f"integer({code.python}, {widest.least}, {widest.most})"
            inner = joined(target, text, [code], level=0)
            return inner if widest == target else wrapped(target, text, widest.least, widest.most, [code], level=ATOM)
        if source == types.BOOL:
            return joined(target, f"int({code.python})", [code], level=0, low=0, high=1)
        if target.least <= low and high <= target.most:
            return retyped(code, target)
        return wrapped(target, code.python, low, high, [code], level=code.level)
    assert isinstance(target, FloatType)
    if isinstance(source, FloatType):
        return retyped(code, target) if target.name == "f32" else rounded(target, code.python, [code])
    exact = 11 if target.name == "f16" else 24
    text = f"float({code.python})"
    if -(1 << exact) <= low and high <= 1 << exact:
        return joined(target, text, [code], level=0)
    return rounded(target, text, [code], level=0)


def rounded(type_: FloatType, text: str, parts: Sequence[Code], *, level: int = LOWEST) -> Code:
    """A float, `text` rounded to its type."""
    if type_.name == "f16":
        return joined(type_, f"f16({text})", parts, level=0)
    return joined(type_, text, parts, level=level, raw=True)


def to_bits(code: Code) -> Code:
    """The bits of a value as an unsigned integer."""
    type_ = code.type
    bits = types.bits_of(type_)
    unsigned = types.int_type(bits, False)
    if code.known:
        raw = int.from_bytes(values.to_bytes(type_, code.value), "little") & ((1 << bits) - 1)
        return known((unsigned, raw))
    if isinstance(type_, FloatType):
        return joined(unsigned, f"bits{bits}({code.python})", [code], level=0)
    if type_ == types.BOOL:
        return joined(unsigned, f"int({code.python})", [code], level=0)
    if isinstance(type_, IntType | EnumType) and code.bounds[0] < 0:
        return joined(unsigned, f"{code.at(AND)} & {hex((1 << bits) - 1)}", [code], level=AND)
    return retyped(code, unsigned)


def from_bits(target: Type, code: Code) -> Code:
    """The value of `target` with the bits of an unsigned integer."""
    bits = types.bits_of(target)
    if isinstance(target, FloatType):
        return joined(target, f"float{bits}({code.python})", [code], level=0)
    if target == types.BOOL:
        return joined(target, f"{code.at(OR)} != 0", [code], level=COMPARED)
    base = target.tag if isinstance(target, EnumType) else target
    if isinstance(base, IntType) and base.signed:
        return retyped(wrapped(base, code.python, *code.bounds, [code], level=code.level), target)
    return retyped(code, target, low=None, high=None)


def no_value(code: Code) -> bool:
    """Whether the code has no value: `void`."""
    return code.type == types.VOID


def runtime(code: Code, place: Place, what: str = "the value") -> Code:
    """Return the code if its type exists at run time.

    Raises:
        CslError: it does not: the program must name a type.
    """
    if code.known and code.type in (types.COMPTIME_INT, types.COMPTIME_FLOAT, types.ENUM_LITERAL, types.UNDEFINED):
        raise CslError(f"{what} is needed at run time and must have a type, got {code.type}", place, "@as gives one")
    if code.fields is not None or (code.type.comptime_only and not isinstance(code.type, FunctionType)):
        raise CslError(f"{what} must exist at run time, got {code.type}", place)
    return code


Handler = Callable[[Frame, Any, Type | None], Code]
HANDLERS: dict[type, Handler] = {}
"""Makers of expressions, by the node's class; modules add theirs."""


def handles(*kinds: type[syntax.Expression]) -> Callable[[Handler], Handler]:
    """Register a function as the maker of these expressions."""

    def put(handler: Handler) -> Handler:
        for kind in kinds:
            HANDLERS[kind] = handler
        return handler

    return put


def expression(frame: Frame, node: syntax.Expression, want: Type | None = None, *, raw: bool = False) -> Code:
    """An expression as code; `want` is the type that its place expects, if any.

    Args:
        frame: the function
        node: the expression
        want: a hint: the result may still need `converted`
        raw: whether a float32 may be left unrounded, for a place that rounds it
    """
    if not isinstance(node, syntax.If | syntax.Switch | syntax.Block):
        # They are looked at branch by branch: a branch may lead out of the expression.
        value = evaluate.try_comptime(node, frame.scope)
        if value is not None:
            return known(value)
    handler = HANDLERS.get(type(node))
    if handler is None:
        return known(evaluate.evaluate(node, frame.scope))
    code = handler(frame, node, want)
    return code if raw else frame.settled(code)


def typed(frame: Frame, node: syntax.Expression, type_: Type, what: str = "the value", *, raw: bool = False) -> Code:
    """An expression, converted to a type implicitly."""
    return converted(expression(frame, node, type_, raw=raw), type_, node.place, what)


def unit_cost(type_: Type, operator: str) -> int:
    """Cycles of an operator."""
    if operator in ("/", "%"):
        if types.is_float(type_):
            return costs.DIVIDE_F32 if type_ == types.F32 else costs.DIVIDE_F16
        return costs.DIVIDE_INT
    return costs.ALU * max(1, -(-types.bits_of(type_) // 32))
