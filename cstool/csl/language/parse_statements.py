"""Statements of CSL, and their blocks."""

from cstool.csl.language import syntax
from cstool.csl.language.parse_expressions import ExpressionParser
from cstool.csl.language.tokens import Token

_ASSIGNMENTS = {"=": None} | {f"{operator}=": operator for operator in "+ - * / % & ^ | << >> +% -% *%".split()}
_ATTRIBUTES = ("align", "linksection", "linkname")
_LOOPS = ("while", "for", "inline")
_TOP_LEVEL_ONLY = {"param": "a param", "task": "a task", "layout": "a layout block"}


class StatementParser(ExpressionParser):
    """Reads statements."""

    def block(self, label: str | None = None, start: int | None = None) -> syntax.Block:
        """Read `{ ... }`; a label before it has been read, and began at `start`."""
        opening = self.expect("{", "before the statements of a block")
        self.deeper()
        statements = []
        while self.token.kind != "}":
            if self.token.kind == "end":
                self.close("}", opening)
            statements.append(self.statement())
        self.advance()
        self.shallower()
        return syntax.Block(self.since(opening.start if start is None else start), tuple(statements), label)

    def statement(self) -> syntax.Node:
        """Read a statement, with the `;` at its end."""
        kind = self.token.kind
        if kind in ("const", "var"):
            return self.declaration(self.token.start)
        if kind == "comptime" and self.ahead() in ("const", "var"):
            start = self.advance().start
            return self.declaration(start, comptime=True)
        self._refuse_top_level()
        node = self._body()
        if isinstance(node, syntax.Evaluate) and isinstance(node.expression, syntax.Name) and self.token.kind == "name":
            hint = f"a variable is declared with its type behind it: var {self.token.text}: u16 = 0;"
            raise self.expected("';' after this", self.behind(), hint)
        if not _ends_in_a_block(node):
            self.expect_after_this(";")
            if isinstance(node, syntax.If) and self.token.kind == "else":
                raise self.error("no ';' stands before 'else'", self.since(node.place.end), "if (c) a() else b();")
        else:
            self.accept(";")
        return node

    def _refuse_top_level(self) -> None:
        token = self.token
        what = {"export": "'export'", "extern": "'extern'"}.get(token.kind)
        if token.kind == "fn" and self.ahead() == "name":
            what = "a function"
        if token.kind == "name" and self.ahead() == ("{" if token.text == "layout" else "name"):
            what = _TOP_LEVEL_ONLY.get(token.text)
        if what is not None:
            message = f"{what} stands at the top level of a file, got it in a block"
            raise self.error(message, self.at(token), "or a '}' is missing before it")
        if token.kind == "else":
            raise self.error("'else' has no 'if' before it", self.at(token))
        if token.kind == ";":
            raise self.expected("a statement")

    def branch(self, *, assigns: bool) -> syntax.Node:
        """Read a statement or an expression without a `;` at its end; an assignment only if it `assigns`.

        An expression is returned as it is, so that `if (c) a else b` has the value of a branch.
        """
        token = self.token
        kind = token.kind
        if kind == "{":
            return self.block()
        if kind == "if":
            return self.if_(assigns=assigns)
        if kind == "switch":
            return self.switch(assigns=assigns)
        if kind in ("return", "break", "continue"):
            return self._jump(self.advance())
        if kind in _LOOPS:
            return self._loop(token.start, None)
        if kind == "name" and self.ahead() == ":" and self.ahead(2) in _LOOPS:
            self.advance()
            self.advance()
            return self._loop(token.start, token.text)
        if kind == "comptime" and self.ahead() in ("{", "if", "switch", *_LOOPS) and assigns:
            return self._comptime_block()
        return self._assignment() if assigns else self.expression()

    def _comptime_block(self) -> syntax.ComptimeBlock:
        """`comptime { ... }`; any other statement behind `comptime` becomes the only statement of a block."""
        start = self.advance().start
        if self.token.kind == "{":
            block = self.block()
        else:
            inner = self.branch(assigns=True)
            block = syntax.Block(inner.place, (inner,))
        return syntax.ComptimeBlock(self.since(start), block)

    def _assignment(self) -> syntax.Node:
        target = self.expression()
        if self.token.kind not in _ASSIGNMENTS:
            return target
        if not isinstance(target, syntax.Name | syntax.Field | syntax.Index | syntax.Dereference):
            raise self.error(
                "only a variable, a field, an element or what a pointer points to is assigned to", target.place
            )
        operator = _ASSIGNMENTS[self.advance().kind]
        value = self.expression()
        return syntax.Assign(self.since(target.place.start), target, operator, value)

    def _jump(self, word: Token) -> syntax.Statement:
        label = self.name("a label after ':'") if word.kind != "return" and self.accept(":") else None
        if word.kind == "continue":
            return syntax.Continue(self.since(word.start), label)
        value = None if self.token.kind in (";", ",", "}", ")", "else", "end") else self.expression()
        place = self.since(word.start)
        return syntax.Return(place, value) if word.kind == "return" else syntax.Break(place, label, value)

    # --- loops ---

    def _loop(self, start: int, label: str | None) -> syntax.Node:
        self.deeper()
        inline = self.accept("inline")
        if self.token.kind not in ("while", "for"):
            raise self.expected("'for' or 'while' after 'inline'")
        read = self._while if self.advance().kind == "while" else self._for
        loop = read(start, label, inline)
        self.shallower()
        return loop

    def _while(self, start: int, label: str | None, inline: bool) -> syntax.Node:
        condition = self.condition("while")
        if self.token.kind == "|":
            raise self.error("a 'while' of CSL takes no variable", self.at(self.token))
        step: syntax.Statement | None = None
        if self.accept(":"):
            opening = self.expect("(", "after ':'")
            node = self._assignment()
            step = node if isinstance(node, syntax.Statement) else syntax.Evaluate(node.place, _expression(node))
            self.close(")", opening)
        body = self._body()
        return syntax.While(self.since(start), condition, step, body, label, inline)

    def _for(self, start: int, label: str | None, inline: bool) -> syntax.Node:
        values = self.condition("for")
        if self.token.kind != "|":
            raise self.expected("'|' before the variable of 'for'", hint="for (@range(u16, n)) |i| { ... }")
        opening = self.advance()
        variables = []
        places = []
        while True:
            pointer = self.accept("*")
            place = self.at(self.token)
            name = self.name("a variable of 'for'")
            variables.append((name, pointer))
            places += [(name, place)] if name != "_" else []
            if not self.accept(","):
                break
        self.expect("|", "behind the variables of 'for'")
        if len(variables) > 2:
            raise self.error(
                "a 'for' has a value and at most an index", self.since(opening.start), "for (values) |value, i|"
            )
        self.distinct(places, "the variable")
        body = self._body()
        return syntax.For(self.since(start), values, tuple(variables), body, label, inline)

    def _body(self) -> syntax.Node:
        """Read a statement without a `;` at its end; an expression is one, for its effect."""
        node = self.branch(assigns=True)
        if isinstance(node, syntax.Expression) and not isinstance(node, syntax.Block | syntax.If | syntax.Switch):
            return syntax.Evaluate(node.place, node)
        return node

    # --- declarations of variables ---

    def declaration(self, start: int, *, comptime: bool = False, linkage: str | None = None) -> syntax.Declare:
        """Read `const x: T align(n) = v;`; the words before the `const` have been read."""
        keyword = self.advance().kind
        name_token = self.token
        name = self.name(f"a name after '{keyword}'")
        type_ = self.type_after_colon()
        attributes = self.attributes()
        equals = self.token
        value = self.expression() if self.accept("=") else None
        self._check_value(keyword, name_token, type_, value, linkage, equals)
        self.expect_after_this(";")
        return syntax.Declare(self.since(start), keyword, name, type_, value, comptime, linkage, attributes)

    def attributes(self) -> tuple[tuple[str, syntax.Expression], ...]:
        """Read `align(n) linksection(s) linkname(s)`, each at most once."""
        found = []
        places = []
        while self.token.kind == "name" and self.token.text in _ATTRIBUTES:
            word = self.advance()
            found.append((word.text, self.condition(word.text)))
            places.append((word.text, self.at(word)))
        self.distinct(places, "the attribute")
        return tuple(found)

    def _check_value(
        self,
        keyword: str,
        name: Token,
        type_: syntax.Expression | None,
        value: syntax.Expression | None,
        linkage: str | None,
        equals: Token,
    ) -> None:
        if linkage == "extern":
            if value is not None:
                raise self.error("what is extern has its value elsewhere", self.since(equals.start))
            if type_ is None:
                raise self.error(f"'{name.text}' is extern and needs a type", self.at(name))
        elif value is None and self.token.kind == ";":
            if keyword == "const":
                raise self.error(f"the const '{name.text}' needs a value", self.at(name))
            if type_ is None:
                raise self.error(f"the var '{name.text}' needs a type or a value", self.at(name))


def _expression(node: syntax.Node) -> syntax.Expression:
    assert isinstance(node, syntax.Expression)
    return node


def _ends_in_a_block(node: syntax.Node) -> bool:
    """Whether it needs no `;` at its end."""
    while True:
        if isinstance(node, syntax.If):
            node = node.then if node.otherwise is None else node.otherwise
        elif isinstance(node, syntax.While | syntax.For):
            node = node.body
        else:
            return isinstance(node, syntax.Block | syntax.Switch | syntax.ComptimeBlock)
