"""The function that is being written, and its expressions and statements.

Operations that need statements in Python (rounding to float32, an `if` with statements in it) are written as lines
before the line that uses them, and `Frame.ordered` keeps the order of evaluation.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from cstool.csl.language import evaluate, syntax
from cstool.csl.language.emit_code import NOTHING, Code, known
from cstool.csl.language.evaluate import RunTime, Scope
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import Type
from cstool.csl.language.values import Value

if TYPE_CHECKING:
    from cstool.csl.language.emit import ProgramText


@dataclass(frozen=True)
class Local(RunTime):
    """A name of a function that is known at run time alone.

    Args:
        type: type of its value
        address: its address in SRAM [bytes], if it is there
        code: its value, where it does not change and is not in SRAM
        variable: its variable in Python, for a `var`
        const: whether it cannot be assigned to
    """

    code: Code | None = None
    variable: str | None = None
    const: bool = True


class Line(str):
    """A line of Python.

    Args:
        text: the line
        place: place of the statement in CSL that wrote it
    """

    __slots__ = ("place",)
    place: Place | None

    def __new__(cls, text: str, place: Place | None) -> "Line":
        """Make a line of its text."""
        made = super().__new__(cls, text)
        made.place = place
        return made

    def moved_left(self) -> "Line":
        """The line, a level less deep."""
        return Line(self[4:], self.place)


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
    step: Callable[[], object] | None = None
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
        self.lines: list[Line] = []
        self.at: Place | None = None  # the statement that is being written
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
            return self.captured(lambda: self.expression(node))[0].type
        finally:
            self.scope = kept

    # --- text ---

    def line(self, text: str, *, effect: bool = True) -> None:
        """Write a line; without `effect` it changes nothing that other code reads."""
        self.lines.append(Line("    " * self.indent + text, self.at))
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
        self.lines.append(Line(f"{head}{self.pending}", None))
        self.pending = 0

    def tick(self) -> None:
        """Likewise, before a call in an expression; in `captured` code, the caller of `captured` counts."""
        if not self.capturing:
            self.flush()

    def timed(self, text: str) -> Code:
        """Write a line behind the counted cycles, since it looks at the clock, or jumps; it has no value."""
        self.flush()
        self.line(text)
        return NOTHING

    def assign(self, variable: str, code: Code, *, effect: bool = True) -> None:
        """Write a value to a Python variable."""
        code = self.settled(code)
        if code.calls:
            self.flush()
        self.line(f"{variable} = {code.python}", effect=effect)

    @contextmanager
    def indented(self, head: str) -> Iterator[None]:
        """Write a head line and an inner block, `pass` if it is empty; its cost is counted inside."""
        self.timed(head)
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
        yield
        self.scope = outer

    def captured(self, make: Callable[[], Code]) -> tuple[Code, list[Line], int]:
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

    def declare(self, name: str, what: Local | Value, place: Place | None = None) -> None:
        """Declare a name in the innermost block.

        Raises:
            CslError: the block has the name already.
        """
        self.scope.declare(name, what, place)

    # --- values ---

    def variable(self, code: Code, hint: str) -> Code:
        """A code's value in a variable of its own, so that it is evaluated here and once."""
        code = self.settled(code)
        if code.known or code.fields is not None:
            return code
        name = self.fresh(hint)
        self.line(f"{name} = {code.text}", effect=code.calls)
        return code.in_variable(name)

    def settled(self, code: Code) -> Code:
        """A float32 rounded, unless it is: through a cell of a float32 array, the fastest way in Python."""
        if not code.raw:
            return code
        cell = f"R[{self.program.cell()}]"
        self.line(f"{cell} = {code.text}", effect=code.calls)
        return code.in_variable(cell)

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
        return self.ordered([partial(self.expression, node, hint) for node, hint in zip(nodes, hints, strict=False)])

    def _kept(self, code: Code, position: int) -> Code:
        name = self.fresh("kept")
        self.lines.insert(position, Line("    " * self.indent + f"{name} = {code.text}", self.at))
        return code.in_variable(name)

    # --- expressions and statements ---

    def expression(self, node: syntax.Expression, want: Type | None = None, *, raw: bool = False) -> Code:
        """An expression as code; `want` is the type that its place expects, if any.

        Args:
                node: the expression
            want: a hint: the result may still need `converted`
            raw: whether a float32 may be left unrounded, for a place that rounds it
        """
        if not isinstance(node, syntax.If | syntax.Switch | syntax.Block):
            # They are looked at branch by branch: a branch may lead out of the expression.
            value = evaluate.try_comptime(node, self.scope)
            if value is not None:
                return known(value)
        handler = EXPRESSIONS.get(type(node))
        if handler is None:
            return known(evaluate.evaluate(node, self.scope))
        code = handler(self, node, want)
        return code if raw else self.settled(code)

    def typed(self, node: syntax.Expression, type_: Type, what: str = "the value", *, raw: bool = False) -> Code:
        """An expression, converted to a type implicitly."""
        return self.expression(node, type_, raw=raw).converted(type_, node.place, what)

    def statement(self, node: syntax.Node) -> bool:
        """Write a statement; returns whether the code behind it can be reached."""
        if isinstance(node, syntax.Expression) and type(node) not in STATEMENTS:  # of a case: `1 => f(),`
            node = syntax.Evaluate(node.place, node)
        writer = STATEMENTS.get(type(node))
        if writer is None:
            raise CslError("a statement stands here", node.place)
        outer, self.at = self.at, node.place
        try:
            return writer(self, node)
        finally:
            self.at = outer

    # --- places and errors ---

    def where(self, place: Place) -> str:
        """A place for compiled code, quoted."""
        return repr(str(place))


EXPRESSIONS: syntax.Table[type[syntax.Node], Callable[[Frame, Any, Type | None], Code]] = syntax.Table()
"""Makers of expressions, by the node's class; modules add theirs."""
STATEMENTS: syntax.Table[type[syntax.Node], Callable[[Frame, Any], bool]] = syntax.Table()
"""Likewise, writers of statements; each returns whether the code behind it can be reached."""
