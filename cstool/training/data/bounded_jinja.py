"""An environment of Jinja for templates from anywhere: a sandbox whose loops end and whose texts stay small.

Each turn of a loop and each call of a macro is a step, and steps are counted, so that a limit is the same on any
machine. Texts that `+`, `~`, `*` and `%` make are measured before, or at once after, they are made.
"""

import re
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MOST_STEPS = 2**20
MOST_CHARACTERS = 2**24
_MOST_POWER = 64
_WIDE = re.compile(r"\d{5}")


class _Generation(Extension):
    """The tag `{% generation %}`."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja has it

    def parse(self, parser: Parser) -> nodes.Node:
        """Parse the tag, and all up to its end."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        self.environment.generations += 1  # type: ignore[attr-defined]
        return nodes.CallBlock(self.call_method("around"), [], [], body).set_lineno(line)

    def around(self, caller: Any) -> str:
        """Return the text between the tags, with marks if they are asked for."""
        text = caller()
        begin, end = self.environment.marks  # type: ignore[attr-defined]
        return f"{begin}{text}{end}"


class _Steps(NodeTransformer):
    """Counts the steps of a template in itself."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        """Count the turns of a loop."""
        return self._counted(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        """Count the calls of a macro."""
        return self._counted(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        """Join texts by a function that measures them."""
        self.generic_visit(node)
        call = nodes.Call(nodes.EnvironmentAttribute("joined"), node.nodes, [], None, None)
        return call.set_lineno(node.lineno)

    def _counted(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        call = nodes.Call(nodes.EnvironmentAttribute("step"), [], [], None, None)
        node.body.insert(0, nodes.ExprStmt(call).set_lineno(node.lineno))
        found: nodes.Node = node
        return found


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """An environment for one template, with one thread at a time."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self.generations = 0
        """number of tags `{% generation %}`"""
        self.marks = ("", "")
        """around the assistant's texts"""
        self._steps = 0

    def begin(self, marks: tuple[str, str]) -> None:
        """Begin to count, with these marks around the assistant's texts."""
        self._steps, self.marks = 0, marks

    def step(self) -> None:
        """Count a step, or raise TemplateError where they are too many."""
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise TemplateError(f"no end after {MOST_STEPS:,} turns of its loops")

    def check_size(self, size: int) -> None:
        """Raise TemplateError if a text has too many characters."""
        if size > MOST_CHARACTERS:
            raise TemplateError(f"a text of more than {MOST_CHARACTERS:,} characters")

    def joined(self, *parts: Any) -> str:
        """Return the texts of values, one after the other."""
        texts = [str(part) for part in parts]
        self.check_size(sum(map(len, texts)))
        return "".join(texts)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Return the result of an operator, or raise TemplateError if it is too large."""
        if operator == "*":
            for one, other in ((left, right), (right, left)):
                if hasattr(one, "__len__") and isinstance(other, int):
                    self.check_size(len(one) * other)
        if operator == "**" and not (abs(left) <= 2**_MOST_POWER and abs(right) <= _MOST_POWER):
            raise TemplateError("a power of large numbers")
        if operator == "%" and isinstance(left, str) and _WIDE.search(left):
            raise TemplateError("a number of five digits in a format")
        found = super().call_binop(context, operator, left, right)
        if isinstance(found, (str, list, tuple)):
            self.check_size(len(found))
        return found

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Steps().visit(super()._parse(source, name, filename))
        tree.set_environment(self)
        return tree


def bounded_environment(*, tojson: Any, **functions: Any) -> BoundedEnvironment:
    """Return an environment with a filter, and functions that templates may call."""
    found = BoundedEnvironment()
    found.filters["tojson"] = tojson
    found.globals.update(functions)
    # Both draw random numbers; the former writes as much as it is asked for.
    del found.globals["lipsum"], found.filters["random"]
    return found
