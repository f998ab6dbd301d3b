"""Places of CSL's nodes, damaged programs, and programs that nest too deep."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.csl.language import syntax
from cstool.csl.language.parse import parse, parse_expression
from cstool.csl.language.source import CslError, Source
from tests.csl_mutants import nodes
from tests.examples import examples

PROGRAM = """
// A bit of everything.
param n: i16; param rows: u16 = 4; param memcpy_params;
const m = @import_module("<memcpy/memcpy>", memcpy_params);
export var a: [n, 2]f32 align(16) = @zeros([n, 2]f32);
extern fn far(x: [*]const f16, y: *i16) void;
const E = enum(u16) { A, B = 0x1F };
const S = packed struct { a: u3, b: f32 = 1.5e-3, };
const dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i, j|{n, 2} -> a[i, 2 * j + 1] });
const out = @get_dsd(fabout_dsd, if (@is_arch("wse3")) .{ .extent = 1 } else .{ .fabric_color = 3, .extent = 1 });
fn add(comptime T: type, x: T, f: *const fn(T) T) [2]T {
  var p = &a[0, 1]; const e: E = .A;
  (p.*)[0] += -x * 2 - ~3 << 1;
  const s = S{ .a = 1 };
  return [2]T{ s.b, if (x == 0 and !(n > 2) or false) 1 else blk: { break :blk f(x); } };
}
task t(v: f32) void {
  comptime var i: u16 = 0;
  outer: while (i < 5) : (i += 1) {
    inline for (@range(i16, n)) |*x, k| { if (k == 2) continue :outer; x.* = v; }
    switch (i) { 0, 1 => break, 2...4 => { @activate(3); }, else => if (v < 0.0) return else m.done(), }
  }
  if (v > 1.0) { add(f32, v, &far); } else if (v == 1.0) @block(5) else i = 0;
  _ = comptime m.get("a\\n", {}, undefined);
}
comptime { @bind_local_task(t, 3); }
layout { @set_rectangle(1, 1); for ([_]u16{ 1, 2 }) |x| @set_tile_code(x, 0, "pe.csl", .{}); }
"""


def error_of(source: Source) -> CslError | None:
    """What is wrong with a text; anything that is raised but a CslError fails the test."""
    try:
        parse(source)
    except CslError as error:
        return error
    return None


def test_every_kind_of_node_is_in_the_program():
    kinds = {type(node) for node in nodes(parse(Source("a.csl", PROGRAM)))}
    assert {kind.__name__ for kind in kinds} == {
        name
        for name, kind in vars(syntax).items()
        if isinstance(kind, type) and issubclass(kind, syntax.Node) and name not in ("Node", "Expression", "Statement")
    }


def test_places_are_within_one_another_and_begin_and_end_with_a_word():
    for node in nodes(parse(Source("a.csl", PROGRAM))):
        text = PROGRAM[node.place.start : node.place.end]
        assert isinstance(node, syntax.File) or text.strip() == text != ""
        for below in nodes(node):
            assert node.place.start <= below.place.start < below.place.end <= node.place.end


def test_a_place_is_the_text_of_its_node():
    text = "(a + b) * -f(x, (y))[0].z"
    root = parse_expression(Source("a.csl", text))
    parts = "a + b;a;b;-f(x, (y))[0].z;f(x, (y))[0].z;f(x, (y))[0];f(x, (y));f;x;y;0".split(";")
    assert {text[node.place.start : node.place.end] for node in nodes(root)} == {text, *parts}


WORDS = [
    *'( ) { } [ ] . .* , ; : = == + - * & | ! -> => ... .. @f 1 0b2 " "s" x _ $ // \n ?'.split(" "),
    *"const var if else while for fn task struct enum switch break return comptime try orelse packed inline".split(),
]


@examples(200)
@given(st.data())
def test_a_damaged_program_is_a_file_or_an_error_with_a_place(data):
    text = PROGRAM
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = start + data.draw(st.sampled_from([0, 0, 1, 2, 10, 200]))
        other = data.draw(st.integers(0, len(text)))
        new = data.draw(st.sampled_from([*(f" {word} " for word in WORDS), "", text[other : other + 20]]))
        text = text[:start] + new + text[end:]
    source = Source("a.csl", text)
    error = error_of(source)
    if error is not None:
        assert error.place is not None
        assert 0 <= error.place.start <= error.place.end <= len(text)
        assert "^" in str(error)


@examples(150)
@given(st.lists(st.sampled_from(WORDS), max_size=30))
def test_any_words_are_a_file_or_an_error(words):
    for text in (" ".join(words), f"fn f() void {{ {' '.join(words)}", f"const x = {' '.join(words)}"):
        error = error_of(Source("a.csl", text))
        assert error is None or "^" in str(error)


NESTS = {
    ("const x = ", ";"): (
        "(~1~) & -~1~ & comptime ~1~ & f(~1~) & @f(~1~) & a[~1~] & 1 + (~1~) & .{ .a = ~1~ } & T{ ~1~ } & "
        "if (a) ~1~ else 2 & if (~1~) 2 else 3 & switch (~1~) {} & switch (a) { 1 => ~1~ } & a: { break :a ~1~; } & "
        "|i|{ ~1~ } -> y[i] & [~1~]u8 & enum { A = ~1~ } & struct { a: ~u8~ } & struct { a: u8 = ~1~ }"
    ),
    ("var x: ", ";"): "* ~u8~ & [1]~u8~ & [*]const ~u8~ & fn(~u8~) void & fn() ~u8~",
    ("fn f() void ", ""): "{ ~~}",
    ("fn f() void { ", " }"): (
        "a: { ~~} & if (a) { ~~} & if (a) ~f();~ & while (a) ~f();~ & a: for (b) |c| ~f();~ & "
        "comptime while (a) ~{}~ & comptime if (a) ~{}~ & switch (a) { else => ~{}~ }"
    ),
}
"""what nests, by what stands around all of it: what opens a level, what is innermost, what closes it"""


@pytest.mark.parametrize(
    ("around", "nest"), [(around, nest) for around in NESTS for nest in NESTS[around].split(" & ")]
)
def test_deep_nesting_is_refused_before_python_refuses_it(around, nest):
    before, after = around
    opening, inner, closing = nest.split("~")

    def error_at(levels: int) -> CslError | None:
        return error_of(Source("a.csl", before + opening * levels + inner + closing * levels + after))

    assert error_at(45) is None
    errors = [str(error_at(levels)) for levels in range(46, 110, 7)]
    at = next(at for at, error in enumerate(errors) if error != "None")
    assert "nested more than 100 deep" in str(error_at(1500))
    either = ("nested more than 100 deep", "more than 200 things within one another")
    assert all(any(message in error for message in either) for error in errors[at:])


LONG = [("1", " + 1"), ("a", ".b"), ("a", "[0]"), ("if (a) 1", " else if (a) 1")]


@pytest.mark.parametrize(("first", "more"), LONG)
def test_long_chains_are_taken_until_they_are_too_deep_to_walk_over(first, more):
    with pytest.raises(CslError, match="more than 200 things within one another"):
        parse(Source("a.csl", f"const x = {first}{more * 1500};"))
    assert error_of(Source("a.csl", f"const x = {first}{more * 150};")) is None
