"""Compilers of statements: blocks, branches, loops and jumps."""

from collections.abc import Callable, Iterable
from typing import Any

from cstool.csl.language import arithmetic, syntax, types, values
from cstool.csl.language.evaluate_core import (
    Code,
    Env,
    Frame,
    Jump,
    JumpOut,
    Run,
    Step,
    compile_expression,
    compile_statement,
    constant,
    expression_of,
    lazy,
    nothing,
    run_of,
    statement_of,
)
from cstool.csl.language.evaluate_places import dereference
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import BOOL, ArrayType, PointerType
from cstool.csl.language.values import Value, describe

# --- blocks and branches ---


def statements(nodes: Iterable[syntax.Node], env: Env) -> Step:
    """Code of statements, one after the other, each compiled when it is first reached."""
    nodes = tuple(nodes)
    steps: list[Step] = []
    shape = env.shape
    needed = 0

    def run(frame: Frame) -> Any:
        nonlocal needed
        if len(steps) == len(nodes):
            if len(frame) < needed:
                frame.extend([None] * (needed - len(frame)))
            for step in steps:
                jump = step(frame)
                if jump is not None:
                    return jump
            return None
        at = 0
        while at < len(nodes):
            if at == len(steps):
                steps.append(compile_statement(nodes[at], env))
                needed = shape.size
            if len(frame) < shape.size:
                frame.extend([None] * (shape.size - len(frame)))
            jump = steps[at](frame)
            if jump is not None:
                return jump
            at += 1
        return None

    return run


@statement_of(syntax.Block)
def _block_statement(node: syntax.Block, env: Env) -> Step:
    inner = statements(node.statements, env.child())
    label = node.label
    if label is None:
        return inner

    def step(frame: Frame) -> Any:
        jump = inner(frame)
        return None if jump is not None and jump.kind == "break" and jump.label == label else jump

    return step


@expression_of(syntax.Block)
def _block(node: syntax.Block, env: Env) -> Code:
    if not node.statements:
        return constant(values.VOID)
    inner = statements(node.statements, env.child())
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
    if value[0] is not BOOL and value[0] != BOOL:
        raise CslError(f"a condition is a bool, got {describe(value)}", place, "compare it: 'x != 0'")
    return bool(value[1])


@statement_of(syntax.If)
def _if_statement(node: syntax.If, env: Env) -> Step:
    condition = compile_expression(node.condition, env)
    place = node.condition.place
    if condition.value is not None:
        taken = node.then if _condition(condition.value, place) else node.otherwise
        return nothing if taken is None else compile_statement(taken, env.child())
    then = lazy(node.then, env, compile_statement)
    otherwise = nothing if node.otherwise is None else lazy(node.otherwise, env, compile_statement)
    run = condition.run

    def step(frame: Frame) -> Any:
        value = run(frame)
        if value is values.TRUE or (value is not values.FALSE and _condition(value, place)):
            return then(frame)
        return otherwise(frame)

    return step


@expression_of(syntax.If)
def _if(node: syntax.If, env: Env) -> Code:
    condition = compile_expression(node.condition, env)
    place = node.condition.place
    if condition.value is not None:
        taken = node.then if _condition(condition.value, place) else node.otherwise
        return constant(values.VOID) if taken is None else _value_of_branch(taken, env.child())
    then = lazy(node.then, env, _branch_run)
    otherwise = None if node.otherwise is None else lazy(node.otherwise, env, _branch_run)
    run = condition.run

    def value(frame: Frame) -> Value:
        if _condition(run(frame), place):
            return then(frame)  # type: ignore[no-any-return]
        return values.VOID if otherwise is None else otherwise(frame)

    return Code(value)


def _branch_run(node: syntax.Node, env: Env) -> Run:
    return _value_of_branch(node, env).run


def _value_of_branch(node: syntax.Node, env: Env) -> Code:
    if isinstance(node, syntax.Expression):
        return compile_expression(node, env)
    step = compile_statement(node, env)

    def run(frame: Frame) -> Value:
        jump = step(frame)
        if jump is not None:
            raise JumpOut(jump)
        return values.VOID

    return Code(run)


def _cases(node: syntax.Switch, env: Env, compile_: Callable[[syntax.Node, Env], Step]) -> Callable[[Frame], Step]:
    """A function that finds the branch of a switch."""
    subject = compile_expression(node.subject, env)
    cases: list[tuple[list[Callable[[Frame, Value], bool]], Step]] = []
    otherwise: Step | None = None
    for case in node.cases:
        body = lazy(case.body, env, compile_)
        if not case.values:
            otherwise = body
        cases.append(([_case_test(value, env) for value in case.values], body))
    place, run = node.place, subject.run

    def find(frame: Frame) -> Step:
        value = run(frame)
        for tests, body in cases:
            if any(test(frame, value) for test in tests):
                return body
        if otherwise is None:
            raise CslError(f"no case of this switch is for {describe(value)}", place, "add 'else => ...'")
        return otherwise

    return find


def _case_test(node: syntax.Expression, env: Env) -> Callable[[Frame, Value], bool]:
    if isinstance(node, syntax.Binary) and node.operator == "...":
        low, high, place = run_of(node.left, env), run_of(node.right, env), node.place

        def within(frame: Frame, value: Value) -> bool:
            above = arithmetic.binary(">=", value, low(frame), place)
            return bool(above[1]) and bool(arithmetic.binary("<=", value, high(frame), place)[1])

        return within
    code, place = run_of(node, env), node.place
    return lambda frame, value: bool(arithmetic.binary("==", value, code(frame), place)[1])


@statement_of(syntax.Switch)
def _switch_statement(node: syntax.Switch, env: Env) -> Step:
    find = _cases(node, env, compile_statement)
    return lambda frame: find(frame)(frame)


@expression_of(syntax.Switch)
def _switch(node: syntax.Switch, env: Env) -> Code:
    find = _cases(node, env, _branch_run)
    return Code(lambda frame: find(frame)(frame))


@statement_of(syntax.ComptimeBlock)
def _comptime_block(node: syntax.ComptimeBlock, env: Env) -> Step:
    return compile_statement(node.body, env.child(calls=True))


@statement_of(syntax.Evaluate)
def _evaluate(node: syntax.Evaluate, env: Env) -> Step:
    return compile_statement(node.expression, env)


# --- loops and jumps ---


def _left(jump: Jump, label: str | None) -> tuple[bool, Jump | None]:
    """Whether a jump ends the loop, and the jump that remains then."""
    if jump.kind != "return" and (jump.label is None or jump.label == label):
        return jump.kind == "break", None
    return True, jump


@statement_of(syntax.While)
def _while(node: syntax.While, env: Env) -> Step:
    inner = env.child()
    condition_run = run_of(node.condition, inner)
    body = lazy(node.body, inner, compile_statement)
    step_run = nothing if node.step is None else lazy(node.step, inner, compile_statement)
    place, label, limits = node.condition.place, node.label, env.module.instance.limits

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


@statement_of(syntax.For)
def _for(node: syntax.For, env: Env) -> Step:
    if not 1 <= len(node.variables) <= 2:
        raise CslError(f"a for loop has a variable and perhaps an index, got {len(node.variables)}", node.place)
    over = run_of(node.values, env)
    inner = env.child()
    (name, by_pointer), *index = node.variables
    slot = inner.declare(name, node.place, changes=False)
    index_slot = inner.declare(index[0][0], node.place, changes=False) if index else None
    if by_pointer:
        raise CslError("a loop at compile time takes its elements by value", node.place, "change them by their index")
    body = lazy(node.body, inner, compile_statement)
    place, label, shape, limits = node.values.place, node.label, env.shape, env.module.instance.limits

    def step(frame: Frame) -> Jump | None:
        if len(frame) < shape.size:
            frame.extend([None] * (shape.size - len(frame)))
        type_, elements = iterated(over(frame), place)
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


@statement_of(syntax.Break)
def _break(node: syntax.Break, env: Env) -> Step:
    if node.value is None:
        jump = Jump("break", node.label, None, node.place)
        return lambda frame: jump
    run = run_of(node.value, env)
    return lambda frame: Jump("break", node.label, run(frame), node.place)


@statement_of(syntax.Continue)
def _continue(node: syntax.Continue, env: Env) -> Step:  # noqa: ARG001
    jump = Jump("continue", node.label, None, node.place)
    return lambda frame: jump


@statement_of(syntax.Return)
def _return(node: syntax.Return, env: Env) -> Step:
    if node.value is None:
        jump = Jump("return", None, values.VOID, node.place)
        return lambda frame: jump
    code = compile_expression(node.value, env)
    if code.value is not None:
        known = Jump("return", None, code.value, node.value.place)
        return lambda frame: known
    run, place = code.run, node.value.place
    return lambda frame: Jump("return", None, run(frame), place)
