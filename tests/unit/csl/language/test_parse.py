"""What the parser of CSL makes of declarations, statements and expressions."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.csl.language import syntax
from cstool.csl.language.parse import parse, parse_expression
from cstool.csl.language.source import CslError, Source
from tests.examples import examples
from tests.unit.csl.language.shown import cases, columns


def dump(value: object) -> str:
    """A node as text: its kind and its parts in their order, without the last ones if they say nothing."""
    if isinstance(value, syntax.Name):
        return value.name
    if isinstance(value, syntax.Number):
        return repr(value.value)
    if isinstance(value, syntax.String):
        return repr(value.value)
    if isinstance(value, syntax.Node):
        parts = [dump(getattr(value, field.name)) for field in fields(value)[1:]]
        while parts and parts[-1] in ("-", "no", "[]"):
            parts.pop()
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, tuple):
        return f"[{' '.join(map(dump, value))}]"
    return {None: "-", False: "no", True: "yes"}.get(value, str(value))


def expression(text: str) -> str:
    return dump(parse_expression(Source("a.csl", text)))


def statements(text: str) -> list[str]:
    (function,) = parse(Source("a.csl", f"fn f() void {{ {text} }}")).declarations
    return [dump(each) for each in function.body.statements]


def declarations(text: str) -> list[str]:
    return [dump(each) for each in parse(Source("a.csl", text)).declarations]


SHORT = r"""
x ==> x    0x10 ==> 16    1.0 ==> 1.0    "a\n" ==> 'a\n'    .north ==> EnumLiteral(north)    .for ==> EnumLiteral(for)
f(a, 1,) ==> Call(f, [a 1])    @as(u16, x) ==> Builtin(as, [u16 x])    a.b.c ==> Field(Field(a, b), c)
a[i, j][0] ==> Index(Index(a, [i j]), [0])    p.* ==> Dereference(p)    -x ==> Unary(-, x)
!a.b ==> Unary(!, Field(a, b))    &a[0] ==> Unary(&, Index(a, [0]))    ~-x ==> Unary(~, Unary(-, x))
a == b ==> Binary(==, a, b)    .{} ==> StructLiteral()    T{ .a = 1 } ==> StructLiteral(T, [[a 1]])
[_]u16{1} ==> StructLiteral(ArrayType([-], u16), [[0 1]])    [2][3]u8 ==> ArrayType([2], ArrayType([3], u8))
*i16 ==> PointerType(i16)    **const i16 ==> PointerType(PointerType(i16, no, yes))    [*]f32 ==> PointerType(f32, yes)
fn(u16, f32)void ==> FunctionType(fn, [u16 f32], void)    |i|{4} -> m.x ==> TensorAccess([i], [4], Field(m, x))
comptime a + b ==> Comptime(Binary(+, a, b))    {} ==> Block()    f({}, 0) ==> Call(f, [Block() 0])
blk: { break :blk 1; } ==> Block([Break(blk, 1)], blk)    union {} ==> StructType(union)
enum { A, B } ==> EnumType(-, [[A -] [B -]])    enum(u16) { A, B = 5, } ==> EnumType(u16, [[A -] [B 5]])
if (a) 1 else 2 + 3 ==> If(a, 1, Binary(+, 2, 3))    1 + if (a) 1 else 2 ==> Binary(+, 1, If(a, 1, 2))
(if (a) 1 else 2) + 3 ==> Binary(+, If(a, 1, 2), 3)    if (a) b else if (c) d else e ==> If(a, b, If(c, d, e))
if (a) 1 ==> If(a, 1)
"""
EXPRESSIONS = r"""
(p.*)[0].*.x ==> Field(Dereference(Index(Dereference(p), [0])), x)
.{ 1, .a, .{} } ==> StructLiteral(-, [[0 1] [1 EnumLiteral(a)] [2 StructLiteral()]])
.{ .async = true, .x = .y, } ==> StructLiteral(-, [[async true] [x EnumLiteral(y)]])
m.T(f32){ .a = 1 } ==> StructLiteral(Call(Field(m, T), [f32]), [[a 1]])
[3]i16 { 1, 2, 3 } ==> StructLiteral(ArrayType([3], i16), [[0 1] [1 2] [2 3]])
[2]T{ T{ .a = 1 }, .{} }[i].a
  Field(Index(StructLiteral(ArrayType([2], T), [[0 StructLiteral(T, [[a 1]])] [1 StructLiteral()]]), [i]), a)
@zeros([n, 2]f32) ==> Builtin(zeros, [ArrayType([n 2], f32)])
[*]const [4]f32 ==> PointerType(ArrayType([4], f32), yes, yes)
*const fn(x: i16) [2]i16 ==> PointerType(FunctionType(fn, [i16], ArrayType([2], i16)), no, yes)
|i|{n} -> x[i + 1] ==> TensorAccess([i], [n], x, [Binary(+, i, 1)])
|i, j|{M, N} -> m.A[i, 2 * j] ==> TensorAccess([i j], [M N], Field(m, A), [i Binary(*, 2, j)])
|i|{4} -> p.*[i] ==> TensorAccess([i], [4], Dereference(p), [i])
struct { a: i16, in: f32 = 0.5, } ==> StructType(struct, [[a i16 -] [in f32 0.5]])
packed struct { a: u3 } ==> StructType(packed struct, [[a u3 -]])
packed union { a: i16, b: f16 }{ .a = 1 } ==> StructLiteral(StructType(packed union, [[a i16 -] [b f16 -]]), [[a 1]])
if (a) .{ .x = 1 } else .{} ==> If(a, StructLiteral(-, [[x 1]]), StructLiteral())
if (a) T{ .x = 1 } else [1]u8{ 2 } ==> If(a, StructLiteral(T, [[x 1]]), StructLiteral(ArrayType([1], u8), [[0 2]]))
switch (x) { 0 => a, 1, 2, => b, 3...5 => { f(); }, else => c }
  Switch(x, [Case([0], a) Case([1 2], b) Case([Binary(..., 3, 5)], Block([Evaluate(Call(f))])) Case([], c)])
switch (e) { .a => 1, else => return, } ==> Switch(e, [Case([EnumLiteral(a)], 1) Case([], Return())])
"""


@pytest.mark.parametrize(("text", "tree"), [*columns(SHORT), *cases(EXPRESSIONS)])
def test_expressions(text, tree):
    assert expression(text) == tree


STATEMENTS = r"""
f(); ==> Evaluate(Call(f))
x = 1; x += 2; p.*[0] <<= 3; _ = f();
  Assign(x, -, 1) & Assign(x, +, 2) & Assign(Index(Dereference(p), [0]), <<, 3) & Assign(_, -, Call(f))
const x = 1; var y: [2]u8 = undefined; var z: i16;
  Declare(const, x, -, 1) & Declare(var, y, ArrayType([2], u8), undefined) & Declare(var, z, i16)
comptime var x: u16 = 0; comptime { x += 1; }
  Declare(var, x, u16, 0, yes) & ComptimeBlock(Block([Assign(x, +, 1)]))
comptime f(); ==> Evaluate(Comptime(Call(f)))
comptime while (a) { f(); } ==> ComptimeBlock(Block([While(a, -, Block([Evaluate(Call(f))]))]))
{ f(); } ==> Block([Evaluate(Call(f))])
blk: { break :blk; } ==> Block([Break(blk)], blk)
if (a) f(); ==> If(a, Call(f))
if (a) x = 1 else y = 2; ==> If(a, Assign(x, -, 1), Assign(y, -, 2))
if (a) { f(); } else g(); ==> If(a, Block([Evaluate(Call(f))]), Call(g))
if (a) f() else { g(); } h(); ==> If(a, Call(f), Block([Evaluate(Call(g))])) & Evaluate(Call(h))
if (a) {} else if (b) {} else {} ==> If(a, Block(), If(b, Block(), Block()))
if (a) if (b) f() else g(); ==> If(a, If(b, Call(f), Call(g)))
if (a) for (x) |y| {} else {} ==> If(a, For(x, [[y no]], Block()), Block())
while (i < n) : (i += 1) { f(i); } ==> While(Binary(<, i, n), Assign(i, +, 1), Block([Evaluate(Call(f, [i]))]))
while (a) : (f()) g(); ==> While(a, Evaluate(Call(f)), Evaluate(Call(g)))
inline while (a) {} ==> While(a, -, Block(), -, yes)
for (@range(i16, n)) |i| { f(i); } ==> For(Builtin(range, [i16 n]), [[i no]], Block([Evaluate(Call(f, [i]))]))
for (x) |*v, i| v.* = i; ==> For(x, [[v yes] [i no]], Assign(Dereference(v), -, i))
a: for (x) |_| { b: inline for (y) |v| { continue :a; break; continue; break :b; } }
  For(x, [[_ no]], Block([For(y, [[v no]], Block([Continue(a) Break() Continue() Break(b)]), b, yes)]), a)
switch (x) { 0 => { f(); }, 1 => y = 2, else => if (a) g() else return, }
  Switch(x, [Case([0], Block([Evaluate(Call(f))])) Case([1], Assign(y, -, 2)) Case([], If(a, Call(g), Return()))])
return; return a + b; return .{}; ==> Return() & Return(Binary(+, a, b)) & Return(StructLiteral())
if (a) return else break :b 1; ==> If(a, Return(), Break(b, 1))
if (a) {}; switch (x) {}; {}; ==> If(a, Block()) & Switch(x) & Block()
const layout = task.param; layout.task(packed); align = linksection;
  Declare(const, layout, -, Field(task, param)) & Evaluate(Call(Field(layout, task), [packed])) & Assign(align, -,
  linksection)
"""


@pytest.mark.parametrize(("text", "trees"), cases(STATEMENTS))
def test_statements(text, trees):
    assert " & ".join(statements(text)) == trees


DECLARATIONS = r"""
param a; param b: i16; param c: u16 = 4; param d = 1; ==> Param(a) & Param(b, i16) & Param(c, u16, 4) & Param(d, -, 1)
const x: i16 align(32) = 10; const y align(64) = x;
  Declare(const, x, i16, 10, no, -, [[align 32]]) & Declare(const, y, -, x, no, -, [[align 64]])
var x: i16 linksection(".s") linkname("n") = 1;
  Declare(var, x, i16, 1, no, -, [[linksection '.s'] [linkname 'n']])
export var x: [4]f32; extern const y: *i16; export const z = 1;
  Declare(var, x, ArrayType([4], f32), -, no, export) & Declare(const, y, PointerType(i16), -, no, extern) &
  Declare(const, z, -, 1, no, export)
var x: if (a) i16 else f16 = 0; ==> Declare(var, x, If(a, i16, f16), 0)
fn f(x: i16, comptime T: type, y: anytype,) T { return x; }
  Function(fn, f, [Parameter(x, i16) Parameter(T, type, yes) Parameter(y, anytype)], T, Block([Return(x)]))
fn f() [3]i16 { } ==> Function(fn, f, [], ArrayType([3], i16), Block())
task t(x: f32) void { } ==> Function(task, t, [Parameter(x, f32)], void, Block())
export fn f() void { } extern fn g(x: [*]f16) *i16;
  Function(fn, f, [], void, Block(), export) & Function(fn, g, [Parameter(x, PointerType(f16, yes))],
  PointerType(i16), -, extern)
comptime { f(); } layout { g(1); };
  ComptimeBlock(Block([Evaluate(Call(f))])) & LayoutBlock(Block([Evaluate(Call(g, [1]))]))
"""


@pytest.mark.parametrize(("text", "trees"), [*cases(DECLARATIONS), ("", ""), ("// nothing\n", "")])
def test_declarations(text, trees):
    assert " & ".join(declarations(text)) == trees


# --- how operators bind, against slower ways to find it ---

LEVELS = ("or", "and", "== != < > <= >=", "& ^ |", "<< >>", "+ - ++ +% -%", "* / % ** *%")  # the loosest first
LEVEL = {operator: level for level, operators in enumerate(LEVELS) for operator in operators.split()}
COMPARISONS = LEVELS[2].split()
UNARIES = "-!~&"

TREES = st.recursive(
    st.sampled_from(["a", "b", "7", "m.x", "f(a)", "x[i]", "p.*", ".{}", "[2]u8{ 1, 2 }"]),
    lambda below: st.one_of(
        st.tuples(st.sampled_from(list(UNARIES)), below), st.tuples(st.sampled_from(sorted(LEVEL)), below, below)
    ),
    max_leaves=12,
)


def full(tree) -> str:
    if isinstance(tree, str):
        return tree
    if len(tree) == 2:
        return f"({tree[0]}{full(tree[1])})"
    return f"({full(tree[1])} {tree[0]} {full(tree[2])})"


def minimal(tree) -> str:
    """The tree as text, with brackets only where it would read as another one without them."""
    if isinstance(tree, str):
        return tree
    if len(tree) == 2:
        inner = minimal(tree[1])
        return f"{tree[0]} ({inner})" if len(tree[1]) == 3 and isinstance(tree[1], tuple) else f"{tree[0]} {inner}"
    operator, left, right = tree
    sides = []
    for side, tightest in ((left, LEVEL[operator] + (operator in COMPARISONS)), (right, LEVEL[operator] + 1)):
        loose = isinstance(side, tuple) and len(side) == 3 and LEVEL[side[0]] < tightest
        sides.append(f"({minimal(side)})" if loose else minimal(side))
    return f"{sides[0]} {operator} {sides[1]}"


def tree_dump(tree) -> str:
    if isinstance(tree, str):
        return expression(tree)
    if len(tree) == 2:
        return f"Unary({tree[0]}, {tree_dump(tree[1])})"
    return f"Binary({tree[0]}, {tree_dump(tree[1])}, {tree_dump(tree[2])})"


@examples(150)
@given(TREES)
def test_brackets_that_need_not_be_change_nothing(tree):
    assert expression(full(tree)) == expression(minimal(tree)) == tree_dump(tree)


def split_at_the_loosest(words: list[str]) -> str:
    """The dump of a chain of operands and operators: its root is the last of the loosest operators."""
    if len(words) == 1:
        return words[0]
    at = min(range(1, len(words), 2), key=lambda place: (LEVEL[words[place]], -place))
    return f"Binary({words[at]}, {split_at_the_loosest(words[:at])}, {split_at_the_loosest(words[at + 1 :])})"


def chains_comparisons(words: list[str]) -> bool:
    """Whether two comparisons stand on one level: with nothing looser between them."""
    operators = [each for each in words[1::2] if LEVEL[each] <= LEVEL["=="]]
    return any(a in COMPARISONS and b in COMPARISONS for a, b in zip(operators, operators[1:], strict=False))


@examples(150)
@given(st.lists(st.sampled_from(sorted(LEVEL)), max_size=12))
def test_chains_of_operators(operators):
    words = ["x"]
    for number, operator in enumerate(operators):
        words += [operator, f"x{number}"]
    text = " ".join(words)
    if chains_comparisons(words):
        with pytest.raises(CslError, match="comparisons do not chain"):
            expression(text)
    else:
        assert expression(text) == split_at_the_loosest(words)


@pytest.mark.parametrize("operator", sorted(set(LEVEL) - set(COMPARISONS)))
def test_operators_that_assign(operator):
    if operator in ("or", "and", "++", "**"):
        with pytest.raises(CslError, match="expected an expression, got '='"):
            statements(f"x {operator}= 1;")
    else:
        assert statements(f"x {operator}= 1;") == [f"Assign(x, {operator}, 1)"]
