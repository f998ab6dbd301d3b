"""Everything the parser of CSL says, in full, with its picture."""

import pytest

from cstool.csl.language.parse import parse, parse_expression
from cstool.csl.language.source import CslError, Source
from tests.unit.csl.language.shown import cases, whole

# A program, its lines parted by ↵, and below it, further in, what is said of it. Of wrong words, test_tokens has more.
CASES = r"""
fn f() void {↵  g()↵}
  2:6 expected ';' after this, got '}'
var x = 5 $;
  1:11 a character that CSL has no use for, '$'
function f() void {}
  1:1-8 expected a declaration, got 'function' | hint: a function begins with 'fn'
foo
  1:1-3 expected a declaration, got 'foo' |
    hint: a file holds param, const, var, export, extern, fn, task, comptime { } and layout { }
pub const x = 1;
  1:1-3 CSL has no 'pub' | hint: leave it out
fn f() void { try g(); }
  1:15-17 CSL has no 'try' | hint: CSL has no errors to return: return a value that says what happened
fn f() void { x = g() catch 1; }
  1:23-27 CSL has no 'catch' | hint: CSL has no errors to return: return a value that says what happened
fn f() void { defer { g(); } }
  1:15-19 CSL has no 'defer' | hint: write the statement where the block ends
fn f() void { x = a orelse b; }
  1:21-26 CSL has no 'orelse' | hint: CSL has no optional types
fn f() { }
  1:7 expected the type of the result, got '{' | hint: what returns nothing is 'fn f(...) void'
fn f() -> void { }
  1:8-9 no '->' stands before the type of the result | hint: fn f(x: i16) i16 { ... }
const a = b < c < d;
  1:17 comparisons do not chain | hint: write 'a < b and b < c'
fn f() void { i++; }
  1:16-17 CSL has no '++' that counts | hint: write 'x += 1'
fn f() void { if (a) b(); else c(); }
  1:25 no ';' stands before 'else' | hint: if (c) a() else b();
fn f() void { if (a = b) c(); }
  1:21 expected ')', got '=' | note 1:18 this '(' is not closed |
    hint: '==' compares; an assignment is a statement of its own
fn f() void { if (a) {b();}
  1:28 expected '}', got the end of the file | note 1:13 this '{' is not closed
const x = f(1, 2;
  1:17 expected ',' or ')' after this, got ';' | note 1:12 this '(' is not closed
const x = .{ .a = 1, 2 };
  1:22 a literal names all of its fields or none | hint: '.{ .a = 1, .b = 2 }' or '.{ 1, 2 }'
const x = .{ .a = 1, .a = 2 };
  1:22-23 the field 'a' is there twice | note 1:14-15 the first one
const x = a[1..2];
  1:14-15 CSL has no slices
export param x;
  1:8-12 expected 'const', 'var' or 'fn' after 'export', got 'param'
fn f(a: []u8) void {}
  1:9 CSL has no slices | hint: a pointer to many is '[*]T', one to an array '*[n]T'
const x = |i, j|{4} -> a[i];
  1:11-19 a tensor access has an extent for each variable, got 2 and 1
const x = while (a) 1;
  1:11-15 expected an expression, got 'while': a loop has no value
fn f() void { while (x) |y| {} }
  1:25 a 'while' of CSL takes no variable
fn f() void { for (x) {} }
  1:23 expected '|' before the variable of 'for', got '{' | hint: for (@range(u16, n)) |i| { ... }
fn f() void { switch (x) { 1 => a, 2..3 => b } }
  1:37-38 a range of values is written '1...5'
fn f() void { switch (x) { 1 => {} 2 => {} } }
  1:35 expected ',' or '}' after this, got '2' | note 1:26 this '{' is not closed
fn f() void { 1 = 2; }
  1:15 only a variable, a field, an element or what a pointer points to is assigned to
const x;
  1:7 the const 'x' needs a value
var x;
  1:5 the var 'x' needs a type or a value
extern var x: i16 = 5;
  1:19-21 what is extern has its value elsewhere
fn f() void { fn g() void {} }
  1:15-16 a function stands at the top level of a file, got it in a block | hint: or a '}' is missing before it
const s = struct { fn f() void {} };
  1:20-21 a struct of CSL has fields only, got 'fn'
comptime { if (x) |y| { z(); } }
  1:28 expected ',' or '}' after this, got ';' | note 1:23 this '{' is not closed
comptime var x = 1;
  1:1-8 a comptime variable stands in a block |
    hint: at the top level every const has its value before the program runs
test "a" { }
  1:1-4 CSL has no 'test'
fn f() void { else {} }
  1:15-18 'else' has no 'if' before it
fn f() void { ; }
  1:15 expected a statement, got ';'
const E = enum(u16) { A, B = 4, A };
  1:33 the member 'A' is there twice | note 1:23 the first one
fn f(x) void { }
  1:7 expected ':' and the type of the parameter 'x', got ')'
const x = @foo;
  1:15 expected '(' after '@foo', got ';'
const x = (1 + );
  1:16 expected an expression, got ')'
const e = error{A, B};
  1:11-15 CSL has no 'error' | hint: CSL has no errors to return: return a value that says what happened
fn f() !void { }
  1:8 CSL has no error unions
fn f() E!void { }
  1:9 CSL has no error unions
var x: = 5;
  1:8 expected a type after ':', got '='
var for = 5;
  1:5-7 expected a name after 'var', got 'for' | hint: 'for' is a word of the language
}
  1:1 expected a declaration, got '}' | hint: each '{' before it is closed already
@export_symbol(x);
  1:1-14 expected a declaration, got '@export_symbol' |
    hint: a statement stands in a fn, a task, comptime { } or layout { }
fn f() void { g();↵↵fn h() void { }
  3:1-2 a function stands at the top level of a file, got it in a block | hint: or a '}' is missing before it
fn f() void g(); }
  1:13 expected '{' and the body of 'f', got 'g'
fn f()
  1:7 expected the type of the result, got the end of the file | hint: what returns nothing is 'fn f(...) void'
struct S { a: i16 }
  1:1-6 expected a declaration, got 'struct' | hint: a type is a value: const S = struct { ... };
const x = y = 3;
  1:12 expected ';' after this, got '=' | hint: '==' compares; an assignment is a statement of its own
const x = f(a = 1);
  1:14 expected ',' or ')' after this, got '=' | note 1:12 this '(' is not closed |
    hint: '==' compares; an assignment is a statement of its own
fn f() void { for (a, b) |x| {} }
  1:21 expected ')', got ',' | note 1:19 this '(' is not closed
fn f() void { for (a) |x, y, z| {} }
  1:23-31 a 'for' has a value and at most an index | hint: for (values) |value, i|
fn f() void { for (a) |x, x| {} }
  1:27 the variable 'x' is there twice | note 1:24 the first one
fn f() void { inline f(); }
  1:22 expected 'for' or 'while' after 'inline', got 'f'
fn f() void { switch (x) { 1 => |y| f(), } }
  1:33 a case of CSL takes no variable
fn f() void { if a { } }
  1:18 expected '(' after 'if', got 'a'
extern fn f() void { }
  1:20 'f' is extern and has its body elsewhere
fn f() void;
  1:12 'f' needs a body | hint: only what is extern has none
extern var x;
  1:12 'x' is extern and needs a type
const x = .{ .a: 1 };
  1:16 expected '=' after '.a', got ':'
const x = (1;↵const s = "abc
  1:13 expected ')', got ';' | note 1:11 this '(' is not closed
const x = a[];
  1:12-13 expected an index
const x = .5;
  1:12 expected a name or '{' after '.', got '5' | hint: a digit stands before the point: 0.5
var x align(4) align(8) = 1;
  1:16-20 the attribute 'align' is there twice | note 1:7-11 the first one
const s = struct { a };
  1:22 expected ':' and the type of the field 'a', got '}'
const x = 5 "a very long string that goes on and on and on";
  1:12 expected ';' after this, got "a very long string that goes ..."
const p = &x.;
  1:14 expected the name of a field after '.', got ';'
fn f() void { break :5; }
  1:22 expected a label after ':', got '5'
const x = |i|{1} x[i];
  1:18 expected '->' after the extents of the tensor access, got 'x'
const x = |i, i|{1, 2} -> x[i];
  1:15 the variable 'i' is there twice | note 1:12 the first one
fn f(a: i16, a: i16) void {}
  1:14-19 the parameter 'a' is there twice | note 1:6-11 the first one
layout x
  1:8 expected '{' after 'layout', got 'x'
const f = fn g() void {};
  1:11-12 a function is declared at the top level of a file
const x = async f();
  1:11-15 CSL has no 'async' | hint: asynchronous is an operation on DSDs: @fmovs(out, in, .{ .async = true })
var x = 5 }↵var s = "abc
  1:10 expected ';' after this, got '}'
"""


CRLF = ("param x\r\nparam y;\r\n", "1:8 expected ';' after this, got 'param'")


@pytest.mark.parametrize(("program", "said"), [*cases(CASES), CRLF])
def test_message(program, said):
    with pytest.raises(CslError) as caught:
        parse(Source("a.csl", program))
    assert str(caught.value) == whole(said, {"a.csl": program})


def test_more_than_an_expression():
    with pytest.raises(CslError) as caught:
        parse_expression(Source("--params", "1 2"))
    assert str(caught.value) == "--params:1:3: expected nothing more, got '2'\n    1 2\n      ^"
