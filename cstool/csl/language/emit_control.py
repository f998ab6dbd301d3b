"""`if`, `switch`, blocks, `break` and `continue`, as statements and as expressions.

A statement's writer returns whether the code behind it can be reached. A condition decided at compile time leaves one
branch, and the other is never looked at.
"""

from collections.abc import Sequence
from functools import partial

from cstool.csl.language import conversions, costs, evaluate, syntax, types, values
from cstool.csl.language.emit_code import NEVER, NOTHING, Code, Level, joined
from cstool.csl.language.emit_frame import EXPRESSIONS, STATEMENTS, Frame, Line, Loop
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import EnumType, IntType, Type
from cstool.csl.language.values import Value

# --- a branch: an expression, a block or a statement ---


def branch(frame: Frame, node: syntax.Node, want: Type | None) -> Code:
    """A branch whose value is used; type `NEVER` if it never ends."""
    if isinstance(node, syntax.Expression):
        return frame.expression(node, want)
    falls = frame.statement(node)
    return NOTHING if falls else Code(NEVER)


def branch_statement(frame: Frame, node: syntax.Node) -> bool:
    """A branch whose value is unused, with its own names."""
    with frame.block():
        return frame.statement(node)


def decided(frame: Frame, node: syntax.Expression, what: str) -> Code:
    """A condition, which may be known."""
    return frame.typed(node, types.BOOL, f"the condition of {what}")


# --- if ---


@STATEMENTS.at(syntax.If)
def if_statement(frame: Frame, node: syntax.If) -> bool:
    """An `if` whose value is unused."""
    condition = decided(frame, node.condition, "an 'if'")
    if condition.known:
        chosen = node.then if condition.value else node.otherwise
        return True if chosen is None else branch_statement(frame, chosen)
    frame.cost(costs.BRANCH)
    head = f"if {condition.python}:"
    if node.otherwise is None:
        _run(frame, [(head, node.then)])
        return True
    falls = _run(frame, [(head, node.then), ("else:", node.otherwise)])
    _join_elif(frame)
    return falls


Branch = tuple[str, syntax.Node]
"""The head line of a branch in Python, and its body."""


def _run(frame: Frame, branches: Sequence[Branch]) -> bool:
    """Write branches whose values are unused."""
    falls = False
    for head, body in branches:
        with frame.indented(head):
            falls = branch_statement(frame, body) or falls
    return falls


def _join_elif(frame: Frame) -> None:
    """Write `else:` with nothing but an `if` in it as `elif`."""
    margin = "    " * frame.indent
    at = len(frame.lines) - 1
    while frame.lines[at] != margin + "else:":
        at -= 1
    inner = frame.lines[at + 1 :]
    deeper = margin + "    "
    if not inner[0].startswith(deeper + "if "):
        return
    for line in inner[1:]:
        if not line.startswith(deeper + " ") and not line.startswith((deeper + "else:", deeper + "elif ")):
            return
    frame.lines[at] = Line(margin + "el" + inner[0][len(deeper) :], None)
    frame.lines[at + 1 :] = [line.moved_left() for line in inner[1:]]


@EXPRESSIONS.at(syntax.If)
def if_expression(frame: Frame, node: syntax.If, want: Type | None) -> Code:
    """`if (c) a else b`."""
    condition = decided(frame, node.condition, "an 'if'")
    if condition.known:
        chosen = node.then if condition.value else node.otherwise
        if chosen is None:
            return NOTHING
        with frame.block():
            return branch(frame, chosen, want)
    if node.otherwise is None:
        raise CslError("an 'if' whose value is used needs an 'else'", node.place)
    frame.cost(costs.BRANCH)
    simple = _conditional(frame, condition, node, want)
    if simple is not None:
        return simple
    branches = [(f"if {condition.python}:", node.then), ("else:", node.otherwise)]
    return _written(frame, branches, want, node.place, "an 'if'")


def _conditional(frame: Frame, condition: Code, node: syntax.If, want: Type | None) -> Code | None:
    """`a if c else b`, if neither branch needs a line of its own."""
    assert node.otherwise is not None
    made = []
    for part in (node.then, node.otherwise):
        effects, writes = frame.effects, frame.writes
        code, lines, cycles = frame.captured(partial(_branch_in_block, frame, part, want))
        frame.effects, frame.writes = effects, writes
        if lines or code.type in (NEVER, types.VOID) or code.fields is not None:
            return None
        made.append((code, cycles))
    (then, one), (otherwise, other) = made
    type_ = common(want, [then, otherwise], node.place, "an 'if'")
    frame.pending += max(one, other)
    then = then.converted(type_, node.then.place)
    otherwise = otherwise.converted(type_, node.otherwise.place)
    low, high = _hull([then, otherwise])
    text = f"{then.at(Level.EITHER)} if {condition.at(Level.EITHER)} else {otherwise.python}"
    return joined(type_, text, [condition, then, otherwise], low=low, high=high)


def _hull(codes: Sequence[Code]) -> tuple[int | None, int | None]:
    if not all(isinstance(code.type, IntType) for code in codes):
        return None, None
    bounds = [code.bounds for code in codes]
    return min(low for low, _ in bounds), max(high for _, high in bounds)


def _branch_in_block(frame: Frame, node: syntax.Node, want: Type | None) -> Code:
    with frame.block():
        return branch(frame, node, want)


def common(want: Type | None, codes: Sequence[Code], place: Place, what: str) -> Type:
    """The common type of values from several branches.

    Raises:
        CslError: there is none that exists at run time.
    """
    values_ = [code for code in codes if code.type != NEVER]
    if want is not None and want != types.ANYTYPE and not want.comptime_only:
        return want
    type_ = values_[0].type if values_ else types.VOID
    for code in values_[1:]:
        if code.type == type_:
            continue
        if conversions.coerces(type_, code.type) or type_ == types.ENUM_LITERAL:
            type_ = code.type
        elif not conversions.coerces(code.type, type_) and not code.known:
            raise CslError(f"the branches of {what} must agree on a type, got {type_} and {code.type}", place)
    if type_.comptime_only:
        raise CslError(
            f"{what} that is decided at run time needs a type that exists then, got {type_}", place, "@as gives one"
        )
    return type_


def _written(frame: Frame, branches: Sequence[Branch], want: Type | None, place: Place, what: str) -> Code:
    """Branches as statements that leave their value in a variable."""
    types_ = []
    for _, node in branches:
        effects, writes, loops = frame.effects, frame.writes, len(frame.loops)
        types_.append(frame.captured(partial(_branch_in_block, frame, node, want))[0])
        frame.effects, frame.writes = effects, writes
        del frame.loops[loops:]
    type_ = common(want, types_, place, what)
    name = None if type_ == types.VOID else frame.fresh("value")
    comes_back = False
    for head, node in branches:
        with frame.indented(head), frame.block():
            code = branch(frame, node, want)
            if code.type == NEVER:
                continue
            comes_back = True
            code = code.converted(type_, node.place)
            if name is not None:
                frame.assign(name, code)
            elif code.calls:
                frame.timed(code.text)
    if not comes_back:
        return Code(NEVER)
    return NOTHING if name is None else Code(type_, name)


# --- switch ---


@STATEMENTS.at(syntax.Switch)
def switch_statement(frame: Frame, node: syntax.Switch) -> bool:
    """A `switch` whose value is unused."""
    subject = frame.expression(node.subject)
    if subject.known:
        chosen = _case_of(frame, node, subject.pair)
        return True if chosen is None else branch_statement(frame, chosen.body)
    return _run(frame, _branches(frame, node, subject))


@EXPRESSIONS.at(syntax.Switch)
def switch_expression(frame: Frame, node: syntax.Switch, want: Type | None) -> Code:
    """A `switch` whose value is used."""
    subject = frame.expression(node.subject)
    if subject.known:
        chosen = _case_of(frame, node, subject.pair)
        if chosen is None:
            raise CslError(f"the switch has no case for {values.show(subject.pair)}", node.place)
        with frame.block():
            return branch(frame, chosen.body, want)
    return _written(frame, _branches(frame, node, subject), want, node.place, "a 'switch'")


def _case_of(frame: Frame, node: syntax.Switch, subject: Value) -> syntax.Case | None:
    otherwise = None
    for case in node.cases:
        if not case.values:
            otherwise = case
        for value in case.values:
            low, high = _case_range(frame, value, subject[0])
            inside = low <= subject[1] <= high if isinstance(subject[1], int) else subject[1] == low
            if inside:
                return case
    return otherwise


def _case_range(frame: Frame, node: syntax.Expression, type_: Type) -> tuple[int, int]:
    """The values of a case: from, to."""
    if isinstance(node, syntax.Binary) and node.operator == "...":
        return _case_range(frame, node.left, type_)[0], _case_range(frame, node.right, type_)[0]
    value = conversions.coerce(evaluate.evaluate(node, frame.scope), type_, node.place, "the case")[1]
    return value, value


def _branches(frame: Frame, node: syntax.Switch, subject: Code) -> list[Branch]:
    """The cases as `if`, `elif`, `else`."""
    if not subject.text.isidentifier():
        subject = frame.variable(subject, "subject")
    type_ = subject.type
    if not (isinstance(type_, IntType | EnumType | types.OpaqueType) or type_ == types.BOOL):
        raise CslError(f"a switch is over integers, enums and bool, got {type_}", node.subject.place)
    found: list[Branch] = []
    covered: list[tuple[int, int, Place]] = []
    otherwise = None
    for case in node.cases:
        if not case.values:
            otherwise = case
            continue
        ranges = [_covering(frame, value, type_, covered) for value in case.values]
        frame.cost(costs.ALU * len(ranges) + costs.BRANCH, 2 * len(ranges))
        found.append((f"{'elif' if found else 'if'} {_test(subject.text, ranges, type_)}:", case.body))
    frame.flush()
    if otherwise is not None:
        if not found:
            return [("if True:", otherwise.body)]
        found.append(("else:", otherwise.body))
    elif sum(high - low + 1 for low, high, _ in covered) < _count(type_):
        raise CslError(f"a switch must have a case for every {type_}, or an 'else'", node.place)
    elif len(found) > 1:
        found[-1] = ("else:", found[-1][1])
    return found


def _covering(
    frame: Frame, node: syntax.Expression, type_: Type, covered: list[tuple[int, int, Place]]
) -> tuple[int, int]:
    low, high = _case_range(frame, node, type_)
    for other_low, other_high, place in covered:
        if low <= other_high and other_low <= high:
            raise CslError("a value has one case", node.place, notes=((place, "it is here"),))
    covered.append((low, high, node.place))
    return low, high


def _count(type_: Type) -> int:
    if isinstance(type_, EnumType):
        return len({number for _, number in type_.members})
    if isinstance(type_, IntType):
        return 1 << type_.bits
    return 2 if type_ == types.BOOL else 1 << 16


def _test(subject: str, ranges: Sequence[tuple[int, int]], type_: Type) -> str:
    single = [low for low, high in ranges if low == high]
    tests = [f"{low} <= {subject} <= {high}" for low, high in ranges if low != high]
    if type_ == types.BOOL:
        return subject if len(single) == 1 and single[0] else f"not {subject}" if len(single) == 1 else "True"
    if len(single) == 1:
        tests.insert(0, f"{subject} == {single[0]}")
    elif single:
        tests.insert(0, f"{subject} in ({', '.join(map(str, single))})")
    return " or ".join(tests)


# --- blocks ---


@STATEMENTS.at(syntax.Block)
def block_statement(frame: Frame, node: syntax.Block) -> bool:
    """Statements in braces."""
    return block_expression(frame, node, None).type != NEVER


def statements(frame: Frame, nodes: Sequence[syntax.Node]) -> bool:
    """Statements, up to the first one that jumps away."""
    return all(frame.statement(each) for each in nodes)


@EXPRESSIONS.at(syntax.Block)
def block_expression(frame: Frame, node: syntax.Block, want: Type | None) -> Code:
    """`label: { ... break :label x; }`; without a label its value is void."""
    if node.label is not None:
        return _labeled(frame, node, want)
    with frame.block():
        return NOTHING if statements(frame, node.statements) else Code(NEVER)


def _labeled(frame: Frame, node: syntax.Block, want: Type | None) -> Code:
    """A labeled block: a `while` that turns once, so that `break` leaves it."""
    loop = Loop(node.label, block=True, want=want)
    type_, effects, writes = None, frame.effects, frame.writes
    frame.captured(lambda: _labeled_body(frame, node, loop))
    frame.effects, frame.writes = effects, writes
    if loop.codes:
        type_ = common(want, loop.codes, node.place, "a labeled block")
    name = None if type_ in (None, types.VOID) else frame.fresh(node.label or "value")
    loop = Loop(node.label, block=True, want=type_, variable=name)
    frame.flush()
    at = len(frame.lines)
    frame.line("while True:")
    frame.indent += 1
    falls = _labeled_body(frame, node, loop).type != NEVER
    if falls:
        frame.timed("break")
    frame.indent -= 1
    flags(frame, at)
    if not falls and not loop.broken:
        return Code(NEVER)
    if name is None or type_ is None:
        return NOTHING
    if falls:
        raise CslError("a labeled block with a value ends in 'break :label value'", node.place)
    return Code(type_, name)


def _labeled_body(frame: Frame, node: syntax.Block, loop: Loop) -> Code:
    frame.loops.append(loop)
    with frame.block():
        falls = statements(frame, node.statements)
    frame.loops.pop()
    return NOTHING if falls else Code(NEVER)


# --- break and continue ---


@STATEMENTS.at(syntax.Break, syntax.Continue)
def leave(frame: Frame, node: syntax.Break | syntax.Continue) -> bool:
    """`break`, `break :label value`, `continue`."""
    word = "break" if isinstance(node, syntax.Break) else "continue"
    loop = _meant(frame, node, word)
    if word == "continue" and loop.block:
        raise CslError("'continue' goes on with a loop, got a labeled block", node.place)
    if isinstance(node, syntax.Break):
        _break_value(frame, node, loop)
        loop.broken = True
    elif loop.step is not None and frame.loops[-1] is loop:
        loop.step()
    frame.flush()
    if frame.loops[-1] is not loop:
        if word not in loop.flags:
            loop.flags[word] = frame.fresh("leave" if word == "break" else "go_on")
        frame.line(f"{loop.flags[word]} = True")
        word = "break"
    frame.line(word)
    return False


def _meant(frame: Frame, node: syntax.Break | syntax.Continue, word: str) -> Loop:
    for loop in reversed(frame.loops):
        if loop.label == node.label if node.label is not None else not loop.block:
            return loop
    if node.label is None:
        raise CslError(f"'{word}' stands in no loop", node.place)
    raise CslError(f"there is no loop or block ':{node.label}' around", node.place)


def _break_value(frame: Frame, node: syntax.Break, loop: Loop) -> None:
    if not loop.block:
        if node.value is not None:
            raise CslError("a loop has no value, got 'break' with one", node.place)
        return
    code = NOTHING if node.value is None else frame.expression(node.value, loop.want)
    loop.codes.append(code)
    if node.value is None or loop.want is None:
        return
    if loop.variable is not None:
        frame.assign(loop.variable, code.converted(loop.want, node.value.place))
    elif code.calls:
        frame.timed(code.text)


def flags(frame: Frame, at: int) -> None:
    """Behind the loop that began at line `at`: leave or continue an outer loop as inner code asked."""
    for outer in reversed(frame.loops):
        for word, flag in outer.flags.items():
            if not any(f"{flag} = True" in line for line in frame.lines[at:]):
                continue
            frame.lines.insert(at, Line("    " * frame.indent + f"{flag} = False", None))
            with frame.indented(f"if {flag}:"):
                if frame.loops[-1] is not outer:
                    word = "break"
                elif word == "continue" and outer.step is not None:
                    outer.step()
                frame.timed(word)
