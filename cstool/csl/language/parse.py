"""From the text of a CSL file to its declarations."""

from cstool.csl.language import syntax
from cstool.csl.language.parse_statements import StatementParser
from cstool.csl.language.source import CslError, Place, Source

MAX_DEPTH = 200  # of the tree: a function that calls itself over it needs a few calls a level

_DECLARATIONS = "a file holds param, const, var, export, extern, fn, task, comptime { } and layout { }"
_IN_A_BLOCK = "a statement stands in a fn, a task, comptime { } or layout { }"
_STATEMENTS = frozenset(["builtin", "if", "for", "while", "switch", "return", "inline"])
_MEANT = {
    **dict.fromkeys(["struct", "union", "enum", "packed"], "a type is a value: const S = struct { ... };"),
    "}": "each '{' before it is closed already",
    "def": "a function begins with 'fn'",
    "func": "a function begins with 'fn'",
    "function": "a function begins with 'fn'",
    "void": "a function begins with 'fn': fn f() void { }",
    "let": "a variable begins with 'const' or 'var'",
    "import": 'a module is a value: const m = @import_module("file.csl");',
}


def parse(source: Source) -> syntax.File:
    """Return the declarations of a file.

    Raises:
        CslError: the first error in it.
    """
    parser = _Parser(source)
    file = parser.file()
    _check_depth(file)
    return file


def parse_expression(source: Source) -> syntax.Expression:
    """Return the expression in a text.

    Raises:
        CslError: it is no expression, or more follows.
    """
    parser = _Parser(source)
    expression = parser.expression()
    parser.end()
    _check_depth(expression)
    return expression


class _Parser(StatementParser):
    def file(self) -> syntax.File:
        declarations = []
        while self.token.kind != "end":
            declarations.append(self._declaration())
        self.end()
        return syntax.File(self.since(0), tuple(declarations))

    def _declaration(self) -> syntax.Declaration:
        start = self.token.start
        if (self.token.kind == "inline" or self.is_word("noinline")) and self.ahead() == "fn":
            self.advance()  # whether a call is written out is the compiler's choice
        if self.token.kind in ("export", "extern"):
            linkage = self.advance().kind
            if self.token.kind in ("const", "var"):
                return self.declaration(start, linkage=linkage)
            if self.token.kind == "fn" or self.is_word("task"):
                return self._function(start, linkage)
            raise self.expected(f"'const', 'var' or 'fn' after '{linkage}'")
        if self.token.kind in ("const", "var"):
            return self.declaration(start)
        if self.token.kind == "fn" or self.is_word("task"):
            return self._function(start, None)
        if self.token.kind == "comptime":
            self.advance()
            return syntax.ComptimeBlock(*self._body_of("comptime", start))
        if self.is_word("layout"):
            self.advance()
            return syntax.LayoutBlock(*self._body_of("layout", start))
        if self.is_word("param"):
            return self._param(start)
        if self.is_word("color") and self.ahead() == "name":
            return self._color(start)
        self.refuse_word_of_zig(self.token)
        is_statement = self.token.kind in _STATEMENTS or (self.token.kind == "name" and self.ahead() in "(=.[")
        hint = _MEANT.get(self.token.text, _IN_A_BLOCK if is_statement else _DECLARATIONS)
        raise self.error(f"expected a declaration, got {self.shown()}", self.at(self.token), hint)

    def _body_of(self, word: str, start: int) -> tuple[Place, syntax.Block]:
        if self.token.kind in ("const", "var"):
            raise self.error(
                "a comptime variable stands in a block",
                self.since(start),
                "at the top level every const has its value before the program runs",
            )
        if self.token.kind != "{":
            raise self.expected(f"'{{' after '{word}'")
        block = self.block()
        self.accept(";")
        return self.since(start), block

    def _param(self, start: int) -> syntax.Param:
        self.advance()
        name = self.name("a name after 'param'")
        type_ = self.type_after_colon()
        default = self.expression() if self.accept("=") else None
        self.expect_after_this(";")
        return syntax.Param(self.since(start), name, type_, default)

    def _color(self, start: int) -> syntax.Param:
        """`color c;`, as SDK 0.9 declared a parameter of this type."""
        type_ = syntax.Name(self.at(self.token), "color")
        self.advance()
        name = self.name("a name after 'color'")
        default = self.expression() if self.accept("=") else None
        self.expect_after_this(";")
        return syntax.Param(self.since(start), name, type_, default)

    def _function(self, start: int, linkage: str | None) -> syntax.Function:
        kind = self.advance().text
        name = self.name(f"a name after '{kind}'")
        parameters = self._parameters(name)
        if self.token.kind == "->":
            raise self.error(
                "no '->' stands before the type of the result", self.at(self.token), "fn f(x: i16) i16 { ... }"
            )
        if self.token.kind in ("{", ";", "end"):
            hint = f"what returns nothing is '{kind} {name}(...) void'"
            raise self.expected("the type of the result", self.behind(), hint)
        result = None if self.token.kind == "!" else self.type_()
        if result is None or self.token.kind == "!":
            raise self.error("CSL has no error unions", self.at(self.token))
        body = None
        if linkage == "extern":
            if self.token.kind == "{":
                raise self.error(f"'{name}' is extern and has its body elsewhere", self.at(self.token))
            self.expect_after_this(";")
        elif self.token.kind == ";":
            raise self.error(f"'{name}' needs a body", self.at(self.token), "only what is extern has none")
        elif self.token.kind != "{":
            raise self.expected(f"'{{' and the body of '{name}'")
        else:
            body = self.block()
        return syntax.Function(self.since(start), kind, name, parameters, result, body, linkage)

    def _parameters(self, function: str) -> tuple[syntax.Parameter, ...]:
        opening = self.expect("(", f"after '{function}'")
        parameters = []
        for _ in self.items(")", opening):
            start = self.token.start
            comptime = self.accept("comptime")
            name = self.name("the name of a parameter")
            type_ = self.type_after_colon()
            if type_ is None:
                raise self.expected(f"':' and the type of the parameter '{name}'")
            parameters.append(syntax.Parameter(self.since(start), name, type_, comptime))
        self.distinct(((each.name, each.place) for each in parameters), "the parameter")
        return tuple(parameters)


def _check_depth(root: syntax.Node) -> None:
    """Refuse a tree that is too deep for functions that call themselves over it.

    Long chains, `a + b + c` or `else if`, are read with a loop, and yet each link is one level deeper.
    """
    level = [root]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in syntax.children(node)]
        if not level:
            return
    raise CslError(f"more than {MAX_DEPTH} things within one another", level[0].place, "give a part of it a name")
