"""Expressions, types and literals of CSL.

Operators have the precedence of Zig (Zig language reference, "Precedence"). They group to the left, and comparisons do
not chain.
"""

from abc import abstractmethod

from cstool.csl.language import syntax
from cstool.csl.language.cursor import ZIG_WORDS, Cursor
from cstool.csl.language.source import Place
from cstool.csl.language.tokens import Token, number_value, string_value

_COMPARISON = 3
PRECEDENCE = {
    operator: precedence
    for precedence, operators in enumerate(
        ("or", "and", "== != < > <= >=", "& ^ |", "<< >>", "+ - +% -% ++", "* / % *% **"), start=1
    )
    for operator in operators.split()
}
_PREFIXES = frozenset("-!~&")
_NO_VALUE = {
    "while": "a loop has no value",
    "for": "a loop has no value",
    "inline": "a loop has no value",
    "return": "'return' has no value",
    "break": "'break' has no value",
    "continue": "'continue' has no value",
    "const": "a declaration has no value",
    "var": "a declaration has no value",
}


class ExpressionParser(Cursor):
    """Reads expressions. Blocks and branches are for `StatementParser`."""

    @abstractmethod
    def block(self, label: str | None = None, start: int | None = None) -> syntax.Block:
        """Read `{ ... }`."""

    @abstractmethod
    def branch(self, *, assigns: bool) -> syntax.Node:
        """Read a branch behind `if (c)`, without a `;` at its end; an assignment only if it `assigns`."""

    # --- operators ---

    def expression(self, above: int = 0) -> syntax.Expression:
        """Read an expression of operators that bind closer than the precedence `above`."""
        self.deeper()
        start = self.token.start
        left = self._prefix()
        while (precedence := PRECEDENCE.get(self.token.kind, 0)) > above:
            operator = self.advance()
            if operator.kind == "++" and self.token.kind in (";", ")"):
                raise self.error("CSL has no '++' that counts", self.at(operator), "write 'x += 1'")
            right = self.expression(precedence)
            left = syntax.Binary(self.since(start), operator.kind, left, right)
            if precedence == _COMPARISON and PRECEDENCE.get(self.token.kind) == _COMPARISON:
                raise self.error("comparisons do not chain", self.at(self.token), "write 'a < b and b < c'")
        self.shallower()
        return left

    def _prefix(self) -> syntax.Expression:
        token = self.token
        if token.kind in _PREFIXES:
            self.advance()
            self.deeper()
            operand = self._prefix()
            self.shallower()
            return syntax.Unary(self.since(token.start), token.kind, operand)
        if token.kind == "comptime":
            self.advance()
            expression = self.expression()
            return syntax.Comptime(self.since(token.start), expression)
        if token.kind == "|":
            return self._tensor_access()
        value = self.type_()
        if self.token.kind == "{" and _may_begin_a_literal(value):
            opening = self.advance()
            fields = self._literal_fields(opening)
            value = self._suffixes(syntax.StructLiteral(self.since(token.start), value, fields), token.start)
        return value

    def _tensor_access(self) -> syntax.Expression:
        opening = self.advance()
        variables = []
        while True:
            place = self.at(self.token)
            variables.append((self.name("a variable of the tensor access"), place))
            if not self.accept(","):
                break
        self.expect("|", "behind the variables of the tensor access")
        self.distinct(variables, "the variable")
        brace = self.expect("{", "before the extents of the tensor access")
        extents = self._list("}", brace)
        if len(extents) != len(variables):
            raise self.error(
                f"a tensor access has an extent for each variable, got {len(variables)} and {len(extents)}",
                self.since(opening.start),
            )
        self.expect("->", "after the extents of the tensor access")
        tensor = self.type_()
        place = self.since(opening.start)
        names = tuple(name for name, _ in variables)
        if isinstance(tensor, syntax.Index):
            return syntax.TensorAccess(place, names, extents, tensor.base, tensor.indices)
        return syntax.TensorAccess(place, names, extents, tensor, ())

    # --- operands ---

    def type_(self) -> syntax.Expression:
        """Read an operand without operators, such as a type. It does not end in a literal's `{`."""
        token = self.token
        kind = "fn" if self.is_word("task") and self._is_task_type() else token.kind
        if kind not in ("*", "**", "[", "fn"):
            return self._suffixes(self._atom(), token.start)
        self.deeper()
        read = {"*": self._pointer, "**": self._pointer, "[": self._array, "fn": self._function_type}[kind]
        type_ = read(self.advance())
        self.shallower()
        return type_

    def type_after_colon(self) -> syntax.Expression | None:
        """Read `: T` if it is there."""
        if not self.accept(":"):
            return None
        if self.token.kind in ("=", ";", ",", ")", "}"):
            raise self.expected("a type after ':'")
        return self.type_()

    def _pointer(self, star: Token) -> syntax.Expression:
        const = self.accept("const")
        pointee = self.type_()
        pointer = syntax.PointerType(self.since(star.end - 1), pointee, many=False, const=const)
        if star.kind == "*":
            return pointer
        return syntax.PointerType(self.since(star.start), pointer, many=False, const=False)

    def _array(self, opening: Token) -> syntax.Expression:
        if self.token.kind == "]":
            raise self.error(
                "CSL has no slices", self.since(opening.start), "a pointer to many is '[*]T', one to an array '*[n]T'"
            )
        if self.token.kind == "*" and self.ahead() == "]":
            self.advance()
            self.advance()
            const = self.accept("const")
            pointee = self.type_()
            return syntax.PointerType(self.since(opening.start), pointee, many=True, const=const)
        extents = [
            None if isinstance(extent, syntax.Name) and extent.name == "_" else extent
            for extent in self._list("]", opening)
        ]
        element = self.type_()
        return syntax.ArrayType(self.since(opening.start), tuple(extents), element)

    def _function_type(self, word: Token) -> syntax.Expression:
        if self.token.kind == "name" and self.ahead() == "(":
            raise self.error("a function is declared at the top level of a file", self.since(word.start))
        opening = self.expect("(", f"after '{word.text}'")
        parameters = []
        for _ in self.items(")", opening):
            if self.token.kind == "name" and self.ahead() == ":":
                self.advance()
                self.advance()
            parameters.append(self.type_())
        result = self.type_()
        return syntax.FunctionType(self.since(word.start), word.text, tuple(parameters), result)

    def _is_task_type(self) -> bool:
        """Whether `task (...)` is a type: a result follows, which a call of a function named `task` does not have."""
        if self.ahead() != "(":
            return False
        at, depth = 2, 1
        while depth and self.ahead(at) != "end":
            depth += {"(": 1, ")": -1}.get(self.ahead(at), 0)
            at += 1
        return self.ahead(at) in ("name", "*", "[", "fn")

    def _suffixes(self, value: syntax.Expression, start: int) -> syntax.Expression:
        while True:
            kind = self.token.kind
            if kind == ".":
                self.advance()
                name = self.field_name("the name of a field after '.'")
                value = syntax.Field(self.since(start), value, name)
            elif kind == ".*":
                self.advance()
                value = syntax.Dereference(self.since(start), value)
            elif kind == "(":
                arguments = self._list(")", self.advance())
                value = syntax.Call(self.since(start), value, arguments)
            elif kind == "[":
                opening = self.advance()
                indices = self._list("]", opening)
                if not indices:
                    raise self.error("expected an index", self.since(opening.start))
                value = syntax.Index(self.since(start), value, indices)
            else:
                return value

    def _list(self, closing: str, opening: Token) -> tuple[syntax.Expression, ...]:
        values = []
        for _ in self.items(closing, opening):
            values.append(self.expression())
            if self.token.kind == "..":
                raise self.error("CSL has no slices", self.at(self.token))
        return tuple(values)

    def _atom(self) -> syntax.Expression:
        token = self.token
        kind = token.kind
        if kind == "name":
            return self._named(token)
        if kind == "number":
            self.advance()
            return syntax.Number(self.at(token), number_value(self.source, token))
        if kind == "builtin":
            self.advance()
            opening = self.expect("(", f"after '{token.text}'")
            arguments = self._list(")", opening)
            return syntax.Builtin(self.since(token.start), token.text[1:], arguments)
        if kind == ".":
            return self._dotted(self.advance())
        if kind == "string":
            self.advance()
            return syntax.String(self.at(token), string_value(self.source, token))
        if kind == "(":
            self.advance()
            value = self.expression()
            self.close(")", token)
            return value
        if kind == "{":
            return self.block()
        if kind in ("struct", "union"):
            return self._struct(token)
        if kind == "enum":
            return self._enum(self.advance())
        if kind == "if":
            return self.if_(assigns=False)
        if kind == "switch":
            return self.switch(assigns=False)
        if kind in _NO_VALUE:
            raise self.error(f"expected an expression, got '{kind}': {_NO_VALUE[kind]}", self.at(token))
        raise self.expected("an expression")

    def _named(self, token: Token) -> syntax.Expression:
        if token.text == "packed" and self.ahead() in ("struct", "union"):
            return self._struct(self.advance())
        self.advance()
        if self.token.kind == ":" and self.ahead() == "{":
            self.advance()
            return self.block(token.text, token.start)
        return syntax.Name(self.at(token), token.text)

    def _dotted(self, dot: Token) -> syntax.Expression:
        if self.token.kind == "{":
            fields = self._literal_fields(self.advance())
            return syntax.StructLiteral(self.since(dot.start), None, fields)
        if self.token.kind == "number":
            raise self.expected("a name or '{' after '.'", hint="a digit stands before the point: 0.5")
        name = self.field_name("a name or '{' after '.'")
        return syntax.EnumLiteral(self.since(dot.start), name)

    def _literal_fields(self, opening: Token) -> tuple[tuple[str, syntax.Expression], ...]:
        self.deeper()
        fields: list[tuple[str, syntax.Expression]] = []
        named: list[tuple[str, Place]] = []
        for _ in self.items("}", opening):
            token = self.token
            has_name = token.kind == "." and self._names_a_field()
            if fields and has_name != bool(named):
                raise self.error(
                    "a literal names all of its fields or none", self.at(token), "'.{ .a = 1, .b = 2 }' or '.{ 1, 2 }'"
                )
            name = str(len(fields))
            if has_name:
                self.advance()
                name = self.field_name("the name of a field after '.'")
                named.append((name, self.since(token.start)))
                self.advance()
            fields.append((name, self.expression()))
        self.distinct(named, "the field")
        self.shallower()
        return tuple(fields)

    def _names_a_field(self) -> bool:
        if self.ahead(2) == ":":
            self.advance()
            name = self.field_name("the name of a field after '.'")
            raise self.expected(f"'=' after '.{name}'")
        return self.ahead() != "{" and self.ahead(2) == "="

    # --- types with a body ---

    def _struct(self, first: Token) -> syntax.Expression:
        word = self.advance()
        kind = word.kind if first is word else f"packed {word.kind}"
        opening = self.expect("{", f"after '{kind}'")
        self.deeper()
        fields = []
        places = []
        for _ in self.items("}", opening):
            if self.token.kind in ("fn", "const", "var"):
                raise self.error(f"a {kind} of CSL has fields only, got '{self.token.kind}'", self.at(self.token))
            place = self.at(self.token)
            name = self.field_name("the name of a field")
            type_ = self.type_after_colon()
            if type_ is None:
                raise self.expected(f"':' and the type of the field '{name}'")
            default = self.expression() if self.accept("=") else None
            fields.append((name, type_, default))
            places.append((name, place))
        self.distinct(places, "the field")
        self.shallower()
        return syntax.StructType(self.since(first.start), kind, tuple(fields))

    def _enum(self, word: Token) -> syntax.Expression:
        tag = None
        if self.token.kind == "(":
            bracket = self.advance()
            tag = self.type_()
            self.close(")", bracket)
        opening = self.expect("{", "after 'enum'")
        members = []
        places = []
        for _ in self.items("}", opening):
            place = self.at(self.token)
            name = self.field_name("the name of a member")
            members.append((name, self.expression() if self.accept("=") else None))
            places.append((name, place))
        self.distinct(places, "the member")
        return syntax.EnumType(self.since(word.start), tag, tuple(members))

    # --- choices ---

    def condition(self, word: str) -> syntax.Expression:
        """Read `(c)` after `if`, `while`, `switch` or `for`."""
        opening = self.expect("(", f"after '{word}'")
        value = self.expression()
        if word == "for" and self.token.kind == "..":
            raise self.error("CSL has no ranges with '..'", self.at(self.token), "numbers to loop over: @range(u16, n)")
        self.close(")", opening)
        return value

    def if_(self, *, assigns: bool) -> syntax.If:
        """Read `if (c) a else b`; a chain of `else if` costs no depth of Python's stack."""
        self.deeper()
        chain = []
        otherwise = None
        while True:
            start = self.advance().start
            condition = self.condition("if")
            chain.append((start, condition, self.branch(assigns=assigns)))
            if not self.accept("else"):
                break
            if self.token.kind != "if":
                otherwise = self.branch(assigns=assigns)
                break
        for start, condition, then in reversed(chain):
            otherwise = syntax.If(self.since(start), condition, then, otherwise)
        self.shallower()
        assert isinstance(otherwise, syntax.If)
        return otherwise

    def switch(self, *, assigns: bool) -> syntax.Switch:
        """Read `switch (x) { 1, 2 => a, 3...5 => b, else => c }`."""
        self.deeper()
        start = self.advance().start
        subject = self.condition("switch")
        opening = self.expect("{", "before the cases of 'switch'")
        cases = []
        for _ in self.items("}", opening):
            cases.append(self._case(assigns))
        self.shallower()
        return syntax.Switch(self.since(start), subject, tuple(cases))

    def _case(self, assigns: bool) -> syntax.Case:
        start = self.token.start
        values: list[syntax.Expression] = []
        if not self.accept("else"):
            while not values or (self.accept(",") and self.token.kind != "=>"):
                values.append(self._case_value())
        self.expect("=>", "after the values of a case")
        if self.token.kind == "|" and self.ahead(2) == "|" and self.ahead(3) != "{":
            raise self.error("a case of CSL takes no variable", self.at(self.token))
        body = self.branch(assigns=assigns)
        return syntax.Case(self.since(start), tuple(values), body)

    def _case_value(self) -> syntax.Expression:
        start = self.token.start
        first = self.expression()
        if self.token.kind == "..":
            raise self.error("a range of values is written '1...5'", self.at(self.token))
        if not self.accept("..."):
            return first
        last = self.expression()
        return syntax.Binary(self.since(start), "...", first, last)


def _may_begin_a_literal(value: syntax.Expression) -> bool:
    """Whether a `{` behind it begins a literal of that type."""
    if isinstance(value, syntax.Name):
        return value.name not in ZIG_WORDS
    return isinstance(
        value,
        syntax.Field | syntax.Call | syntax.Builtin | syntax.ArrayType | syntax.StructType | syntax.Index,
    )
