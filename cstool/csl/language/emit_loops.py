"""Loops as Python: `while` with its step, `for` over ranges and arrays, and loops written out turn by turn."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

from cstool.csl.language import conversions, costs, evaluate, syntax, types
from cstool.csl.language.emit_code import Code, Level, known
from cstool.csl.language.emit_control import branch_statement, decided, flags
from cstool.csl.language.emit_frame import STATEMENTS, Frame, Line, Local, Loop
from cstool.csl.language.emit_places import Spot, load, pointed, spot_of
from cstool.csl.language.limits import INLINED
from cstool.csl.language.source import CslError
from cstool.csl.language.types import ArrayType, IntType, PointerType, Type
from cstool.csl.language.values import Value


@STATEMENTS.at(syntax.While)
def while_loop(frame: Frame, node: syntax.While) -> bool:
    """`while (c) : (step) { ... }`."""
    if node.inline:
        return _inline_while(frame, node)
    condition, lines, cycles = frame.captured(lambda: decided(frame, node.condition, "a 'while'"))
    if condition.known and not condition.value:
        return True
    frame.flush()
    at = len(frame.lines)
    polls = _polls(frame, node)
    loop = Loop(node.label, step=None if node.step is None else partial(frame.statement, node.step))
    frame.line(f"while {condition.python}:" if not lines else "while True:")
    frame.indent += 1
    if lines:
        condition = decided(frame, node.condition, "a 'while'")
        with frame.indented(f"if not {condition.at(Level.NEGATED)}:"):
            frame.line("break")
    frame.cost(costs.TURN + (0 if lines else cycles), 3)
    if polls:
        frame.waits = True
        frame.timed("yield from pe.pause()")
    falls = _body(frame, node.body, loop)
    if falls and loop.step is not None:
        loop.step()
    frame.flush()
    frame.indent -= 1
    flags(frame, at)
    return loop.broken or not (condition.known and condition.value)


def _body(frame: Frame, node: syntax.Node, loop: Loop) -> bool:
    frame.loops.append(loop)
    try:
        return branch_statement(frame, node)
    finally:
        frame.loops.pop()


def _inline_while(frame: Frame, node: syntax.While) -> bool:
    """Turns that are written one after the other; the condition is known at compile time."""
    limits = frame.program.instance.limits
    turns = 0
    while True:
        limits.check_turns(turns, "an inline loop", node.place, limits.inlined)
        limits.take(node.place, INLINED)
        value = conversions.coerce(evaluate.evaluate(node.condition, frame.scope), types.BOOL, node.condition.place)
        if not value[1]:
            return True
        if not branch_statement(frame, node.body):
            return False
        if node.step is not None:
            evaluate.execute(node.step, frame.scope)
        turns += 1


@STATEMENTS.at(syntax.For)
def for_loop(frame: Frame, node: syntax.For) -> bool:
    """`for (values) |value, index| { ... }`."""
    if node.inline:
        return _inline_for(frame, node)
    if isinstance(node.values, syntax.Builtin) and node.values.name in ("range", "range_start"):
        return _range_loop(frame, node, node.values)
    named = evaluate.try_comptime(node.values, frame.scope)
    if named is not None and named[0] == types.RANGE:
        return _range_loop(frame, node, node.values)
    return _array_loop(frame, node)


def _inline_for(frame: Frame, node: syntax.For) -> bool:
    type_, data = evaluate.evaluate(node.values, frame.scope)
    limits = frame.program.instance.limits
    if type_ == types.RANGE:
        items: list[Value] = [(data[0], each) for each in islice(data[1], limits.inlined + 1)]
    elif isinstance(type_, ArrayType):
        items = [(type_.element, each) for each in data]
    elif isinstance(data, dict):
        items = list(data.values())
    else:
        raise CslError(f"a 'for' goes over a range or an array, got {type_}", node.values.place)
    limits.check_turns(len(items), "an inline loop", node.place, limits.inlined)
    for at, item in enumerate(items):
        limits.take(node.place, INLINED)
        with frame.block():
            frame.declare(node.variables[0][0], item)
            if len(node.variables) > 1:
                frame.declare(node.variables[1][0], (types.U16, at))
            if not branch_statement(frame, node.body):
                return False
    return True


def _range_loop(frame: Frame, node: syntax.For, values_: syntax.Expression) -> bool:
    """`for (@range(i16, n)) |i|`: Python's `range`; the program is responsible that the end fits the type."""
    value = evaluate.try_comptime(values_, frame.scope)
    if value is not None:
        type_, span = value[1]
        numbers = [known((type_, each)) for each in (span.start, span.stop, span.step)]
    else:
        assert isinstance(values_, syntax.Builtin)
        type_, numbers = _range_numbers(frame, values_)
    start, stop, step = numbers
    low, high = _span(type_, start, stop, step)
    text = _range_text(start, stop, step)
    code = Code(type_, frame.fresh(_value_name(node)), low=low, high=high)
    count = _turns(start.value, stop.value, step.value) if all(each.known for each in numbers) else None
    if count == 0:
        return True
    if len(node.variables) == 1:
        return _counted(frame, node, text, count, f"for {code.text} in {text}:", lambda: [code])
    index = Code(types.U16, frame.fresh(node.variables[1][0]))
    head = f"for {index.text}, {code.text} in enumerate({text}):"
    return _counted(frame, node, text, count, head, lambda: [code, index])


def _counted(
    frame: Frame, node: syntax.For, text: str, count: int | None, head: str, values: Callable[[], Sequence[Code]]
) -> bool:
    """A loop of Python's `for`.

    Args:
        frame: the function
        node: the loop
        text: the `range` of its turns
        count: the number of its turns, if it is known
        head: the head line
        values: makes the values of its variables, inside
    """
    frame.cost(costs.ALU)
    frame.flush()
    at = len(frame.lines)
    frame.line(head)
    frame.indent += 1
    with frame.block():
        frame.cost(costs.TURN, 3)
        for (name, _), code in zip(node.variables, values(), strict=False):
            frame.declare(name, Local(code.type, code=code), node.place)
        _body(frame, node.body, Loop(node.label))
    _end_of_turns(frame, at, text, count)
    return True


def _end_of_turns(frame: Frame, at: int, text: str, count: int | None) -> None:
    """The end of a counted loop: the cost of its turns is added once behind it, where all turns are the same."""
    margin = "    " * frame.indent
    body = frame.lines[at + 1 :]
    simple = all(_plain(line, margin) for line in body)
    pending, frame.pending = frame.pending, 0
    if not (simple and pending):
        frame.pending = pending
        frame.flush()
        frame.indent -= 1
        flags(frame, at)
        return
    frame.indent -= 1
    if not body:
        frame.lines.append(Line(margin + "pass", None))
    if count is not None:
        frame.pending += pending * count
    else:
        frame.lines.append(Line("    " * frame.indent + f"pe.cycles += {pending} * len({text})", None))


_BREAKING = ("if ", "elif ", "else:", "while ", "for ", "break", "continue", "return", "pe.", "yield")


def _plain(line: str, margin: str) -> bool:
    """Whether a line of a loop's body neither jumps nor looks at the clock."""
    text = line[len(margin) :]
    return not text.startswith((" ", *_BREAKING)) and "yield" not in text and "pe" not in text.split("(")[0]


def _range_numbers(frame: Frame, node: syntax.Builtin) -> tuple[Type, list[Code]]:
    arguments = node.arguments
    if node.name == "range" and len(arguments) == 3:
        raise CslError(
            f"@range takes a type and an end, or a type, start, end and step, got {len(arguments)} arguments",
            node.place,
        )
    type_ = evaluate.evaluate_type(arguments[0], frame.scope)
    if not isinstance(type_, IntType):
        raise CslError(f"@range takes an integer type, got {type_}", arguments[0].place)
    made = frame.ordered([partial(frame.typed, each, type_, f"a bound of @{node.name}") for each in arguments[1:]])
    zero, one = known((type_, 0)), known((type_, 1))
    if len(made) == 1:
        return type_, [zero, made[0], one]
    return type_, [*made, one] if len(made) == 2 else made


def _turns(start: int, stop: int, step: int) -> int:
    """The length of a range; Python's `len` knows none from 2**63 on."""
    return max(0, -((start - stop) // step))


def _range_text(start: Code, stop: Code, step: Code) -> str:
    numbers = [start, stop, step]
    if step.known and step.value == 1:
        numbers.pop()
        if start.known and start.value == 0:
            numbers.pop(0)
    return f"range({', '.join(each.python for each in numbers)})"


def _span(type_: IntType, start: Code, stop: Code, step: Code) -> tuple[int, int]:
    """Bounds of a loop's variable."""
    low, high = start.bounds[0], stop.bounds[1] - 1
    if not step.known or step.value < 0:
        low, high = min(stop.bounds[0] + 1, start.bounds[0]), max(start.bounds[1], stop.bounds[1])
    return max(low, type_.least), max(min(high, type_.most), type_.least)


def _value_name(node: syntax.For) -> str:
    name = node.variables[0][0]
    return "each" if name == "_" else name


def _array_loop(frame: Frame, node: syntax.For) -> bool:
    """Over the elements of an array, or by pointer to each."""
    spot = spot_of(frame, node.values)
    if isinstance(spot.type, PointerType) and not spot.type.many:
        spot = pointed(frame.variable(load(frame, spot), "array"), node.values.place)
    array = spot.type
    if not isinstance(array, ArrayType) or len(array.shape) != 1:
        raise CslError(f"a 'for' goes over a range or an array of one dimension, got {array}", node.values.place)
    if not array.count:
        return True
    index = frame.fresh(node.variables[1][0] if len(node.variables) > 1 else "at")
    text = f"range({array.count})"

    def values() -> Sequence[Code]:
        element = _element_at(frame, spot, array, index)
        if not node.variables[0][1]:
            code = load(frame, element)
        elif element.address is not None:
            code = Code(PointerType(array.element, const=spot.const), element.address.text(), level=Level.LOWEST)
        else:
            raise CslError(f"{spot.name} is not in SRAM, so that its elements have no address", node.values.place)
        return frame.variable(code, _value_name(node)), Code(types.U16, index, low=0, high=array.count - 1)

    return _counted(frame, node, text, array.count, f"for {index} in {text}:", values)


def _element_at(frame: Frame, spot: Spot, array: ArrayType, index: str) -> Spot:
    title = f"an element of {spot.name}"
    if spot.address is not None and frame.program.in_sram(array):
        return Spot(array.element, title, spot.const, address=spot.address.plus(0, [(index, array.element.size)]))
    code = spot.code
    if code is not None and code.known:
        text = frame.program.constant(spot.name, array, code.value)
    else:
        text = code.operand if code is not None else str(spot.variable)
    return Spot(array.element, title, True, code=Code(array.element, f"{text}[{index}]", reads=True))


def _polls(frame: Frame, node: syntax.While) -> bool:
    """Whether a loop polls memory that only a microthread can change, which must go on meanwhile.

    So it is if the condition reads a variable of the program, or the target of a pointer, and the body neither assigns
    to it, nor calls, nor leaves the loop.
    """
    names = {each.name for each in syntax.walk(node.condition) if isinstance(each, syntax.Name)}
    watched = {name for name in names if frame.scope.find(name) is None}
    reads = any(isinstance(each, syntax.Dereference | syntax.Index) for each in syntax.walk(node.condition))
    value = evaluate.try_comptime(node.condition, frame.scope)
    if value is not None or not (watched or reads):
        return False
    for each in syntax.walk((node.body, node.step)):
        if isinstance(each, syntax.Break | syntax.Return | syntax.Call):
            return False
        if isinstance(each, syntax.Assign):
            root: Any = each.target
            while isinstance(root, syntax.Field | syntax.Index | syntax.Dereference):
                root = root.pointer if isinstance(root, syntax.Dereference) else root.base
            if isinstance(root, syntax.Name) and root.name in names:
                return False
    return True
