"""Compilers of statements: blocks, branches, loops and jumps."""

from collections.abc import Callable, Iterable
from typing import Any

from cstool.csl.language import arithmetic, syntax, types, values
from cstool.csl.language.evaluate_core import (
    EXPRESSIONS,
    STATEMENTS,
    Code,
    Frame,
    Jump,
    JumpOut,
    Run,
    Scope,
    Step,
    constant,
    nothing,
)
from cstool.csl.language.evaluate_places import dereference
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.together import Together
from cstool.csl.language.types import BOOL, ArrayType, PointerType
from cstool.csl.language.values import Value, describe

# --- blocks and branches ---


def statements(nodes: Iterable[syntax.Node], scope: Scope) -> Step:
    """Code of statements, one after the other, each compiled when it is first reached."""
    nodes = tuple(nodes)
    steps: list[Step] = []
    shape = scope.shape

    def run(frame: Frame) -> Any:
        for at, node in enumerate(nodes):
            if at == len(steps):
                steps.append(scope.statement(node))
            if len(frame) < shape.size:
                shape.fit(frame)
            jump = steps[at](frame)
            if jump is not None:
                return jump
        return None

    return run


@STATEMENTS.at(syntax.Block)
def _block_statement(node: syntax.Block, scope: Scope) -> Step:
    inner = statements(node.statements, scope.child())
    label = node.label
    if label is None:
        return inner

    def step(frame: Frame) -> Any:
        jump = inner(frame)
        return None if jump is not None and jump.kind == "break" and jump.label == label else jump

    return step


@EXPRESSIONS.at(syntax.Block)
def _block(node: syntax.Block, scope: Scope) -> Code:
    if not node.statements:
        return constant(values.VOID)
    inner = statements(node.statements, scope.child())
    label = node.label

    def run(frame: Frame) -> Value:
        jump = inner(frame)
        if jump is None:
            return values.VOID
        if jump.kind == "break" and jump.label == label and label is not None:
            return jump.value or values.VOID
        raise JumpOut(jump)

    return Code(run)


def _condition(value: Value, place: Place) -> bool:
    if value is values.TRUE:
        return True
    if value[0] is not BOOL and value[0] != BOOL:
        raise CslError(f"a condition is a bool, got {describe(value)}", place, "compare it: 'x != 0'")
    return bool(value[1])


@STATEMENTS.at(syntax.If)
def _if_statement(node: syntax.If, scope: Scope) -> Step:
    condition = scope.expression(node.condition)
    if condition.value is None:
        return _choice(node, condition, scope, Scope.statement, nothing)
    taken = node.then if _condition(condition.value, node.condition.place) else node.otherwise
    return nothing if taken is None else scope.child().statement(taken)


@EXPRESSIONS.at(syntax.If)
def _if(node: syntax.If, scope: Scope) -> Code:
    condition = scope.expression(node.condition)
    if condition.value is None:
        return Code(_choice(node, condition, scope, _branch_run, lambda frame: values.VOID))
    taken = node.then if _condition(condition.value, node.condition.place) else node.otherwise
    return constant(values.VOID) if taken is None else _value_of_branch(taken, scope.child())


def _choice(
    node: syntax.If, condition: Code, scope: Scope, compile_: Callable[[Scope, syntax.Node], Step], absent: Step
) -> Step:
    """Code of an `if` whose condition is not constant; `absent` runs in the place of an `else` that is not there."""
    then = scope.lazy(node.then, compile_)
    otherwise = absent if node.otherwise is None else scope.lazy(node.otherwise, compile_)
    place, decide = node.condition.place, condition.run
    return lambda frame: (then if _condition(decide(frame), place) else otherwise)(frame)


def _branch_run(scope: Scope, node: syntax.Node) -> Run:
    return _value_of_branch(node, scope).run


def _value_of_branch(node: syntax.Node, scope: Scope) -> Code:
    if isinstance(node, syntax.Expression):
        return scope.expression(node)
    step = scope.statement(node)

    def run(frame: Frame) -> Value:
        jump = step(frame)
        if jump is not None:
            raise JumpOut(jump)
        return values.VOID

    return Code(run)


def _cases(node: syntax.Switch, scope: Scope, compile_: Callable[[Scope, syntax.Node], Step]) -> Step:
    """Code that finds the branch of a switch, and runs it."""
    run = scope.run_of(node.subject)
    cases: list[tuple[list[Callable[[Frame, Value], bool]], Step]] = []
    otherwise: Step | None = None
    for case in node.cases:
        body = scope.lazy(case.body, compile_)
        if not case.values:
            otherwise = body
        cases.append(([_case_test(value, scope) for value in case.values], body))
    place = node.place

    def step(frame: Frame) -> Any:
        value = run(frame)
        for tests, body in cases:
            if any(test(frame, value) for test in tests):
                return body(frame)
        if otherwise is None:
            raise CslError(f"no case of this switch is for {describe(value)}", place, "add 'else => ...'")
        return otherwise(frame)

    return step


def _case_test(node: syntax.Expression, scope: Scope) -> Callable[[Frame, Value], bool]:
    if isinstance(node, syntax.Binary) and node.operator == "...":
        low, high, place = scope.run_of(node.left), scope.run_of(node.right), node.place

        def within(frame: Frame, value: Value) -> bool:
            above = arithmetic.binary(">=", value, low(frame), place)
            return bool(above[1]) and bool(arithmetic.binary("<=", value, high(frame), place)[1])

        return within
    code, place = scope.run_of(node), node.place
    return lambda frame, value: bool(arithmetic.binary("==", value, code(frame), place)[1])


@STATEMENTS.at(syntax.Switch)
def _switch_statement(node: syntax.Switch, scope: Scope) -> Step:
    return _cases(node, scope, Scope.statement)


@EXPRESSIONS.at(syntax.Switch)
def _switch(node: syntax.Switch, scope: Scope) -> Code:
    return Code(_cases(node, scope, _branch_run))


@STATEMENTS.at(syntax.ComptimeBlock)
def _comptime_block(node: syntax.ComptimeBlock, scope: Scope) -> Step:
    return scope.child(calls=True).statement(node.body)


@STATEMENTS.at(syntax.Evaluate)
def _evaluate(node: syntax.Evaluate, scope: Scope) -> Step:
    return scope.statement(node.expression)


# --- loops and jumps ---


def _left(jump: Jump, label: str | None) -> tuple[bool, Jump | None]:
    """Whether a jump ends the loop, and the jump that remains then."""
    if jump.kind != "return" and (jump.label is None or jump.label == label):
        return jump.kind == "break", None
    return True, jump


@STATEMENTS.at(syntax.While)
def _while(node: syntax.While, scope: Scope) -> Step:
    inner = scope.child()
    condition_run = inner.run_of(node.condition)
    body = inner.lazy(node.body, Scope.statement)
    step_run = nothing if node.step is None else inner.lazy(node.step, Scope.statement)
    place, label, limits = node.condition.place, node.label, scope.module.instance.limits

    def step(frame: Frame) -> Jump | None:
        turns = 0
        while _condition(condition_run(frame), place):
            turns += 1
            limits.check_turns(turns, "a 'while' at compile time", node.place, limits.turns)
            limits.take(node.place)
            jump = body(frame)
            if jump is not None:
                ends, to = _left(jump, label)
                if ends:
                    return to
            step_run(frame)
        return None

    return step


@STATEMENTS.at(syntax.For)
def _for(node: syntax.For, scope: Scope) -> Step:
    over = scope.run_of(node.values)
    inner = scope.child()
    (name, by_pointer), *index = node.variables
    slot = inner.local(name, node.place, changes=False)
    index_slot = inner.local(index[0][0], node.place, changes=False) if index else None
    if by_pointer:
        raise CslError("a loop at compile time takes its elements by value", node.place, "change them by their index")
    body = inner.lazy(node.body, Scope.statement)
    instance = scope.module.instance
    place, label, shape, limits = node.values.place, node.label, scope.shape, instance.limits
    together = Together(instance, node, slot, index_slot)

    def step(frame: Frame) -> Jump | None:
        shape.fit(frame)
        type_, elements = iterated(over(frame), place)
        if together.run(body, frame, type_, elements):
            return None
        for at, element in enumerate(elements):
            limits.check_turns(at + 1, "a 'for' at compile time", node.place, limits.turns)
            limits.take(node.place)
            frame[slot] = (type_, element)
            if index_slot is not None:
                frame[index_slot] = (types.U16, at)
            jump = body(frame)
            if jump is not None:
                ends, to = _left(jump, label)
                if ends:
                    return to
        return None

    return step


def iterated(value: Value, place: Place | None) -> tuple[types.Type, Iterable[Any]]:
    """Elements of a `for` loop: their type, and their data.

    Raises:
        CslError: it is no array, pointer to an array, or range.
    """
    type_, data = value
    if type_ == types.RANGE:
        return data[0], data[1]
    if isinstance(type_, ArrayType):
        return type_.element, data
    if isinstance(type_, PointerType) and isinstance(type_.pointee, ArrayType):
        return iterated(dereference(value, place), place)
    if type_ == types.STRUCT and all(name.isdigit() for name in data):
        kinds = {field[0] for field in data.values()}
        if len(kinds) == 1:
            return kinds.pop(), [field[1] for field in data.values()]
    raise CslError(f"a for loop goes over an array or @range(T, n), got {describe(value)}", place)


@STATEMENTS.at(syntax.Break)
def _break(node: syntax.Break, scope: Scope) -> Step:
    if node.value is None:
        jump = Jump("break", node.label, None, node.place)
        return lambda frame: jump
    run = scope.run_of(node.value)
    return lambda frame: Jump("break", node.label, run(frame), node.place)


@STATEMENTS.at(syntax.Continue)
def _continue(node: syntax.Continue, scope: Scope) -> Step:  # noqa: ARG001
    jump = Jump("continue", node.label, None, node.place)
    return lambda frame: jump


@STATEMENTS.at(syntax.Return)
def _return(node: syntax.Return, scope: Scope) -> Step:
    if node.value is None:
        jump = Jump("return", None, values.VOID, node.place)
        return lambda frame: jump
    code = scope.expression(node.value)
    if code.value is not None:
        known = Jump("return", None, code.value, node.value.place)
        return lambda frame: known
    run, place = code.run, node.value.place
    return lambda frame: Jump("return", None, run(frame), place)
