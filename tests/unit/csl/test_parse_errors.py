"""Everything the parser of CSL says, in full, with its picture."""

import pytest

from cstool.csl.parse import parse, parse_expression
from cstool.csl.source import CslError, Source

# A program, a line of "=", and what is said of it; "---" parts them.
CASES = r"""
fn f() void { var x = 5 }
===
a.csl:1:24: expected ';' after this, got '}'
    fn f() void { var x = 5 }
                           ^
---
fn f() void {
  g()
}
===
a.csl:2:6: expected ';' after this, got '}'
      g()
         ^
---
const s = "abc;
===
a.csl:1:11: this string has no closing '"'
    const s = "abc;
              ^^^^^
hint: a string ends on the line where it begins
---
const s = "a\qb";
===
a.csl:1:13: not an escape of a string, \q
    const s = "a\qb";
                ^^
hint: the escapes are \n \r \t \\ \" \' \x41 and \u{41}
---
const x = 0b12;
===
a.csl:1:11: not a number, 0b12
    const x = 0b12;
              ^^^^
hint: numbers are 12, 1_000, 0x1F, 0o17, 0b101, 1.5, 1e-3 and 0x1.8p3; a name does not begin with a digit
---
const x = 1.;
===
a.csl:1:11: not a number, 1.
    const x = 1.;
              ^^
hint: a digit follows the point: 1.0
---
const x = 12abc;
===
a.csl:1:11: not a number, 12abc
    const x = 12abc;
              ^^^^^
hint: numbers are 12, 1_000, 0x1F, 0o17, 0b101, 1.5, 1e-3 and 0x1.8p3; a name does not begin with a digit
---
const x = 0X1F;
===
a.csl:1:11: not a number, 0X1F
    const x = 0X1F;
              ^^^^
hint: the prefixes are 0x, 0o and 0b
---
var x = 5 $;
===
a.csl:1:11: a character that CSL has no use for, '$'
    var x = 5 $;
              ^
---
var x = 5é;
===
a.csl:1:10: a character that CSL has no use for, 'é'
    var x = 5é;
             ^
---
function f() void {}
===
a.csl:1:1: expected a declaration, got 'function'
    function f() void {}
    ^^^^^^^^
hint: a function begins with 'fn'
---
foo
===
a.csl:1:1: expected a declaration, got 'foo'
    foo
    ^^^
hint: a file holds param, const, var, export, extern, fn, task, comptime { } and layout { }
---
pub const x = 1;
===
a.csl:1:1: CSL has no 'pub'
    pub const x = 1;
    ^^^
hint: leave it out
---
fn f() void { try g(); }
===
a.csl:1:15: CSL has no 'try'
    fn f() void { try g(); }
                  ^^^
hint: CSL has no errors to return: return a value that says what happened
---
fn f() void { x = g() catch 1; }
===
a.csl:1:23: CSL has no 'catch'
    fn f() void { x = g() catch 1; }
                          ^^^^^
hint: CSL has no errors to return: return a value that says what happened
---
fn f(x: ?u16) void { }
===
a.csl:1:9: CSL has no optional types and no '?'
    fn f(x: ?u16) void { }
            ^
hint: a choice is 'if (c) a else b'
---
fn f() void { defer { g(); } }
===
a.csl:1:15: CSL has no 'defer'
    fn f() void { defer { g(); } }
                  ^^^^^
hint: write the statement where the block ends
---
fn f() void { x = a orelse b; }
===
a.csl:1:21: CSL has no 'orelse'
    fn f() void { x = a orelse b; }
                        ^^^^^^
hint: CSL has no optional types
---
fn f() { }
===
a.csl:1:7: expected the type of the result, got '{'
    fn f() { }
          ^
hint: what returns nothing is 'fn f(...) void'
---
fn f() -> void { }
===
a.csl:1:8: no '->' stands before the type of the result
    fn f() -> void { }
           ^^
hint: fn f(x: i16) i16 { ... }
---
const a = b < c < d;
===
a.csl:1:17: comparisons do not chain
    const a = b < c < d;
                    ^
hint: write 'a < b and b < c'
---
fn f() void { i++; }
===
a.csl:1:16: CSL has no '++' that counts
    fn f() void { i++; }
                   ^^
hint: write 'x += 1'
---
fn f() void { if (a) b(); else c(); }
===
a.csl:1:25: no ';' stands before 'else'
    fn f() void { if (a) b(); else c(); }
                            ^
hint: if (c) a() else b();
---
fn f() void { if (a = b) c(); }
===
a.csl:1:21: expected ')', got '='
    fn f() void { if (a = b) c(); }
                        ^
note: a.csl:1:18: this '(' is not closed
    fn f() void { if (a = b) c(); }
                     ^
hint: '==' compares; an assignment is a statement of its own
---
fn f() void { if (a) {b();}
===
a.csl:1:28: expected '}', got the end of the file
    fn f() void { if (a) {b();}
                               ^
note: a.csl:1:13: this '{' is not closed
    fn f() void { if (a) {b();}
                ^
---
const x = f(1, 2;
===
a.csl:1:17: expected ',' or ')' after this, got ';'
    const x = f(1, 2;
                    ^
note: a.csl:1:12: this '(' is not closed
    const x = f(1, 2;
               ^
---
const x = f(1 2);
===
a.csl:1:14: expected ',' or ')' after this, got '2'
    const x = f(1 2);
                 ^
note: a.csl:1:12: this '(' is not closed
    const x = f(1 2);
               ^
---
const x = .{ .a = 1, 2 };
===
a.csl:1:22: a literal names all of its fields or none
    const x = .{ .a = 1, 2 };
                         ^
hint: '.{ .a = 1, .b = 2 }' or '.{ 1, 2 }'
---
const x = .{ .a = 1, .a = 2 };
===
a.csl:1:22: the field 'a' is there twice
    const x = .{ .a = 1, .a = 2 };
                         ^^
note: a.csl:1:14: the first one
    const x = .{ .a = 1, .a = 2 };
                 ^^
---
fn f(a: []u8) void {}
===
a.csl:1:9: CSL has no slices
    fn f(a: []u8) void {}
            ^
hint: a pointer to many is '[*]T', one to an array '*[n]T'
---
const x = |i, j|{4} -> a[i];
===
a.csl:1:11: a tensor access has an extent for each variable, got 2 and 1
    const x = |i, j|{4} -> a[i];
              ^^^^^^^^^
---
const x = while (a) 1;
===
a.csl:1:11: expected an expression, got 'while': a loop has no value
    const x = while (a) 1;
              ^^^^^
---
fn f() void { while (x) |y| {} }
===
a.csl:1:25: a 'while' of CSL takes no variable
    fn f() void { while (x) |y| {} }
                            ^
---
fn f() void { for (x) {} }
===
a.csl:1:23: expected '|' before the variable of 'for', got '{'
    fn f() void { for (x) {} }
                          ^
---
fn f() void { switch (x) { 1 => a, 2..3 => b } }
===
a.csl:1:37: a range of values is written '1...5'
    fn f() void { switch (x) { 1 => a, 2..3 => b } }
                                        ^^
---
fn f() void { switch (x) { 1 => {} 2 => {} } }
===
a.csl:1:35: expected ',' or '}' after this, got '2'
    fn f() void { switch (x) { 1 => {} 2 => {} } }
                                      ^
note: a.csl:1:26: this '{' is not closed
    fn f() void { switch (x) { 1 => {} 2 => {} } }
                             ^
---
fn f() void { 1 = 2; }
===
a.csl:1:15: only a variable, a field, an element or what a pointer points to is assigned to
    fn f() void { 1 = 2; }
                  ^
---
const x;
===
a.csl:1:7: the const 'x' needs a value
    const x;
          ^
---
var x;
===
a.csl:1:5: the var 'x' needs a type or a value
    var x;
        ^
---
extern var x: i16 = 5;
===
a.csl:1:19: what is extern has its value elsewhere
    extern var x: i16 = 5;
                      ^^^
---
fn f() void { fn g() void {} }
===
a.csl:1:15: a function stands at the top level of a file, got it in a block
    fn f() void { fn g() void {} }
                  ^^
hint: or a '}' is missing before it
---
fn f() void { task g() void {} }
===
a.csl:1:15: a task stands at the top level of a file, got it in a block
    fn f() void { task g() void {} }
                  ^^^^
hint: or a '}' is missing before it
---
const s = struct { fn f() void {} };
===
a.csl:1:20: a struct of CSL has fields only, got 'fn'
    const s = struct { fn f() void {} };
                       ^^
---
const x = a[1..2];
===
a.csl:1:14: CSL has no slices
    const x = a[1..2];
                 ^^
---
comptime { if (x) |y| { z(); } }
===
a.csl:1:28: expected ',' or '}' after this, got ';'
    comptime { if (x) |y| { z(); } }
                               ^
note: a.csl:1:23: this '{' is not closed
    comptime { if (x) |y| { z(); } }
                          ^
---
const a = @;
===
a.csl:1:11: expected the name of a builtin after '@'
    const a = @;
              ^
---
const c = 'a';
===
a.csl:1:11: CSL has no single quotes
    const c = 'a';
              ^
hint: a string is "text"; for the code of a character write the number
---
/* a */
===
a.csl:1:1: CSL has no comments of several lines
    /* a */
    ^^
hint: begin each line of the comment with //
---
const x = a && b;
===
a.csl:1:13: CSL has no '&&'
    const x = a && b;
                ^^
hint: write 'and'
---
param memcpy_params
param y;
===
a.csl:1:20: expected ';' after this, got 'param'
    param memcpy_params
                       ^
---
comptime var x = 1;
===
a.csl:1:1: a comptime variable stands in a block
    comptime var x = 1;
    ^^^^^^^^
hint: at the top level every const has its value before the program runs
---
test "a" { }
===
a.csl:1:1: CSL has no 'test'
    test "a" { }
    ^^^^
---
fn f() void { else {} }
===
a.csl:1:15: 'else' has no 'if' before it
    fn f() void { else {} }
                  ^^^^
---
fn f() void { ; }
===
a.csl:1:15: expected a statement, got ';'
    fn f() void { ; }
                  ^
---
const E = enum(u16) { A, B = 4, A };
===
a.csl:1:33: the member 'A' is there twice
    const E = enum(u16) { A, B = 4, A };
                                    ^
note: a.csl:1:23: the first one
    const E = enum(u16) { A, B = 4, A };
                          ^
---
fn f() void { a b; }
===
a.csl:1:16: expected ';' after this, got 'b'
    fn f() void { a b; }
                   ^
---
fn f(x) void { }
===
a.csl:1:7: expected ':' and the type of the parameter 'x', got ')'
    fn f(x) void { }
          ^
---
fn f() void { return 1 2; }
===
a.csl:1:23: expected ';' after this, got '2'
    fn f() void { return 1 2; }
                          ^
---
const x = @foo;
===
a.csl:1:15: expected '(' after '@foo', got ';'
    const x = @foo;
                  ^
---
const x = (1 + );
===
a.csl:1:16: expected an expression, got ')'
    const x = (1 + );
                   ^
---
const e = error{A, B};
===
a.csl:1:11: CSL has no 'error'
    const e = error{A, B};
              ^^^^^
hint: CSL has no errors to return: return a value that says what happened
---
fn f() !void { }
===
a.csl:1:8: CSL has no error unions
    fn f() !void { }
           ^
---
fn f() E!void { }
===
a.csl:1:9: CSL has no error unions
    fn f() E!void { }
            ^
---
var x: = 5;
===
a.csl:1:8: expected a type after ':', got '='
    var x: = 5;
           ^
---
var for = 5;
===
a.csl:1:5: expected a name after 'var', got 'for'
    var for = 5;
        ^^^
hint: 'for' is a word of the language
---
}
===
a.csl:1:1: expected a declaration, got '}'
    }
    ^
hint: each '{' before it is closed already
---
@export_symbol(x);
===
a.csl:1:1: expected a declaration, got '@export_symbol'
    @export_symbol(x);
    ^^^^^^^^^^^^^^
hint: a statement stands in a fn, a task, comptime { } or layout { }
---
x = 5;
===
a.csl:1:1: expected a declaration, got 'x'
    x = 5;
    ^
hint: a statement stands in a fn, a task, comptime { } or layout { }
---
fn f() void { g();

fn h() void { }
===
a.csl:3:1: a function stands at the top level of a file, got it in a block
    fn h() void { }
    ^^
hint: or a '}' is missing before it
---
fn f() void g(); }
===
a.csl:1:13: expected '{' and the body of 'f', got 'g'
    fn f() void g(); }
                ^
---
fn f()
===
a.csl:1:7: expected the type of the result, got the end of the file
    fn f()
          ^
hint: what returns nothing is 'fn f(...) void'
---
struct S { a: i16 }
===
a.csl:1:1: expected a declaration, got 'struct'
    struct S { a: i16 }
    ^^^^^^
hint: a type is a value: const S = struct { ... };
---
const x = y = 3;
===
a.csl:1:12: expected ';' after this, got '='
    const x = y = 3;
               ^
hint: '==' compares; an assignment is a statement of its own
---
const x = f(a = 1);
===
a.csl:1:14: expected ',' or ')' after this, got '='
    const x = f(a = 1);
                 ^
note: a.csl:1:12: this '(' is not closed
    const x = f(a = 1);
               ^
hint: '==' compares; an assignment is a statement of its own
---
const x = f(a =);
===
a.csl:1:14: expected ',' or ')' after this, got '='
    const x = f(a =);
                 ^
note: a.csl:1:12: this '(' is not closed
    const x = f(a =);
               ^
hint: '==' compares; an assignment is a statement of its own
---
fn f() void { for (a, b) |x| {} }
===
a.csl:1:21: expected ')', got ','
    fn f() void { for (a, b) |x| {} }
                        ^
note: a.csl:1:19: this '(' is not closed
    fn f() void { for (a, b) |x| {} }
                      ^
---
fn f() void { for (a) |x, y, z| {} }
===
a.csl:1:23: a 'for' has a value and at most an index
    fn f() void { for (a) |x, y, z| {} }
                          ^^^^^^^^^
hint: for (values) |value, i|
---
fn f() void { for (a) |x, x| {} }
===
a.csl:1:27: the variable 'x' is there twice
    fn f() void { for (a) |x, x| {} }
                              ^
note: a.csl:1:24: the first one
    fn f() void { for (a) |x, x| {} }
                           ^
---
fn f() void { inline f(); }
===
a.csl:1:22: expected 'for' or 'while' after 'inline', got 'f'
    fn f() void { inline f(); }
                         ^
---
fn f() void { switch (x) { 1 => |y| f(), } }
===
a.csl:1:33: a case of CSL takes no variable
    fn f() void { switch (x) { 1 => |y| f(), } }
                                    ^
---
fn f() void { if a { } }
===
a.csl:1:18: expected '(' after 'if', got 'a'
    fn f() void { if a { } }
                     ^
---
extern fn f() void { }
===
a.csl:1:20: 'f' is extern and has its body elsewhere
    extern fn f() void { }
                       ^
---
export param x;
===
a.csl:1:8: expected 'const', 'var' or 'fn' after 'export', got 'param'
    export param x;
           ^^^^^
---
fn f() void;
===
a.csl:1:12: 'f' needs a body
    fn f() void;
               ^
hint: only what is extern has none
---
extern var x;
===
a.csl:1:12: 'x' is extern and needs a type
    extern var x;
               ^
---
const x = @f(.{ .a 1 });
===
a.csl:1:19: expected ',' or '}' after this, got '1'
    const x = @f(.{ .a 1 });
                      ^
note: a.csl:1:15: this '{' is not closed
    const x = @f(.{ .a 1 });
                  ^
---
const x = .{ .a: 1 };
===
a.csl:1:16: expected '=' after '.a', got ':'
    const x = .{ .a: 1 };
                   ^
---
const x = "abc
===
a.csl:1:11: this string has no closing '"'
    const x = "abc
              ^^^^
hint: a string ends on the line where it begins
---
const x = (1;
const s = "abc
===
a.csl:1:13: expected ')', got ';'
    const x = (1;
                ^
note: a.csl:1:11: this '(' is not closed
    const x = (1;
              ^
---
const x = a[];
===
a.csl:1:12: expected an index
    const x = a[];
               ^^
---
const x = .5;
===
a.csl:1:12: expected a name or '{' after '.', got '5'
    const x = .5;
               ^
hint: a digit stands before the point: 0.5
---
var x align(4) align(8) = 1;
===
a.csl:1:16: the attribute 'align' is there twice
    var x align(4) align(8) = 1;
                   ^^^^^
note: a.csl:1:7: the first one
    var x align(4) align(8) = 1;
          ^^^^^
---
const s = struct { a };
===
a.csl:1:22: expected ':' and the type of the field 'a', got '}'
    const s = struct { a };
                         ^
---
const s = struct { a: i16; b: i16 };
===
a.csl:1:26: expected ',' or '}' after this, got ';'
    const s = struct { a: i16; b: i16 };
                             ^
note: a.csl:1:18: this '{' is not closed
    const s = struct { a: i16; b: i16 };
                     ^
---
const x = "a very long string that goes on and on and on" 5;
===
a.csl:1:58: expected ';' after this, got '5'
    const x = "a very long string that goes on and on and on" 5;
                                                             ^
---
const x = 5 "a very long string that goes on and on and on";
===
a.csl:1:12: expected ';' after this, got "a very long string that goes ..."
    const x = 5 "a very long string that goes on and on and on";
               ^
---
const p = &x.;
===
a.csl:1:14: expected the name of a field after '.', got ';'
    const p = &x.;
                 ^
---
fn f() void { break :5; }
===
a.csl:1:22: expected a label after ':', got '5'
    fn f() void { break :5; }
                         ^
---
fn f() void { continue 5; }
===
a.csl:1:23: expected ';' after this, got '5'
    fn f() void { continue 5; }
                          ^
---
const x = |i|{1} x[i];
===
a.csl:1:18: expected '->' after the extents of the tensor access, got 'x'
    const x = |i|{1} x[i];
                     ^
---
const x = |i, i|{1, 2} -> x[i];
===
a.csl:1:15: the variable 'i' is there twice
    const x = |i, i|{1, 2} -> x[i];
                  ^
note: a.csl:1:12: the first one
    const x = |i, i|{1, 2} -> x[i];
               ^
---
fn f(a: i16, a: i16) void {}
===
a.csl:1:14: the parameter 'a' is there twice
    fn f(a: i16, a: i16) void {}
                 ^^^^^^
note: a.csl:1:6: the first one
    fn f(a: i16, a: i16) void {}
         ^^^^^^
---
layout x
===
a.csl:1:8: expected '{' after 'layout', got 'x'
    layout x
           ^
---
const f = fn g() void {};
===
a.csl:1:11: a function is declared at the top level of a file
    const f = fn g() void {};
              ^^
---
const x = 1 ?? 2;
===
a.csl:1:13: CSL has no optional types and no '?'
    const x = 1 ?? 2;
                ^
hint: a choice is 'if (c) a else b'
---
fn f() void { x = 5 else; }
===
a.csl:1:20: expected ';' after this, got 'else'
    fn f() void { x = 5 else; }
                       ^
---
param x: i16 = ;
===
a.csl:1:16: expected an expression, got ';'
    param x: i16 = ;
                   ^
---
const e = enum { A: 1 };
===
a.csl:1:19: expected ',' or '}' after this, got ':'
    const e = enum { A: 1 };
                      ^
note: a.csl:1:16: this '{' is not closed
    const e = enum { A: 1 };
                   ^
---
fn f() void { while (true) { } else { } }
===
a.csl:1:32: 'else' has no 'if' before it
    fn f() void { while (true) { } else { } }
                                   ^^^^
---
const x = async f();
===
a.csl:1:11: CSL has no 'async'
    const x = async f();
              ^^^^^
hint: asynchronous is an operation on DSDs: @fmovs(out, in, .{ .async = true })
---
const x = a b;
===
a.csl:1:12: expected ';' after this, got 'b'
    const x = a b;
               ^
---
packed struct S {}
===
a.csl:1:1: expected a declaration, got 'packed'
    packed struct S {}
    ^^^^^^
hint: a type is a value: const S = struct { ... };
---
var x = 5 }
var s = "abc
===
a.csl:1:10: expected ';' after this, got '}'
    var x = 5 }
             ^
"""


@pytest.mark.parametrize("case", CASES.strip("\n").split("\n---\n"))
def test_message(case):
    program, said = case.split("\n===\n")
    with pytest.raises(CslError) as caught:
        parse(Source("a.csl", program))
    assert str(caught.value) == said


def test_more_than_an_expression():
    with pytest.raises(CslError) as caught:
        parse_expression(Source("--params", "1 2"))
    assert str(caught.value) == "--params:1:3: expected nothing more, got '2'\n    1 2\n      ^"


def test_too_deep():
    with pytest.raises(CslError) as caught:
        parse(Source("a.csl", "const x =\n" + "(" * 200))
    assert str(caught.value).splitlines()[0] == "a.csl:2:101: nested more than 100 deep"


def test_a_file_with_crlf_is_shown_without_the_cr():
    with pytest.raises(CslError) as caught:
        parse(Source("a.csl", "param x\r\nparam y;\r\n"))
    assert str(caught.value) == "a.csl:1:8: expected ';' after this, got 'param'\n    param x\n           ^"
