"""The formatter of CSL: what it writes, that twice is the same as once, and that the program stays."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cstool.csl.language.format as format_module
from cstool.csl.language.format import formatted
from cstool.csl.language.source import CslError, Source
from cstool.csl.language.tokens import tokenize
from tests.examples import examples
from tests.unit.csl.language.test_parse_damaged import PROGRAM

PROJECT = Path(__file__).parents[4]
FOLDERS = ("cstool/csl/language/library", "cstool/csl/models", "examples/csl", "benchmarks/csl")
OURS = sorted(path for folder in FOLDERS for path in PROJECT.glob(f"{folder}/**/*.csl"))

# A program, and below it the same, formatted.
CASES = {
    "blanks": (
        "var  x:i16=1+2*-3 ;fn f(a:i16,b:*i16)[2]i16{return a-b.*;}",
        "var x: i16 = 1 + 2 * -3;\nfn f(a: i16, b: *i16) [2]i16 { return a - b.*; }\n",
    ),
    "types and literals": (
        "const p:[*]const f32=&a;const q=.{.a=[1]u16{ 2 },.b=[2]u16{2,3},.c=.x};const g=fn(u16) void;",
        "const p: [*]const f32 = &a;\nconst q = .{ .a = [1]u16{2}, .b = [2]u16{ 2, 3 }, .c = .x };\n"
        "const g = fn(u16)void;\n",
    ),
    "blocks and choices": (
        "fn f() void {\n if(a){b();}else{c();d();}\n while(a):(i+=1) {}\n for(x)|*e,i|{g(e);}\n"
        "switch(x){\n1,2=>a(), 3...5=>{}, else=>{b();}}}",
        "fn f() void {\n  if (a) { b(); } else {\n    c();\n    d();\n  }\n  while (a) : (i += 1) {}\n"
        "  for (x) |*e, i| { g(e); }\n"
        "  switch (x) {\n    1, 2 => a(),\n    3...5 => {},\n    else => { b(); },\n  }\n}\n",
    ),
    "branches on lines of their own": (
        "fn f() void {\nif (a)\nb()\nelse if (c)\nd()\nelse\ne();\nconst x = if (a) 1\nelse 2;\n}",
        "fn f() void {\n  if (a)\n    b()\n  else if (c)\n    d()\n  else\n    e();\n"
        "  const x = if (a) 1\n            else 2;\n}\n",
    ),
    "the lines of the author": (
        "const x = f(a,\nb +\nc);\nconst y = .{\n1,2,\n3 };",
        "const x = f(a,\n            b +\n              c);\nconst y = .{\n  1, 2,\n  3,\n};\n",
    ),
    "comments and empty lines": (
        "\n\n// first\n\n\n\n\nvar a: i16;   // one\nvar bc: i16;  // two\nvar d: i16; // three\nfn f() void {\n\n"
        "  // in\n\n\n  g(); //out\n    // last\n\n}",
        "// first\n\n\nvar a: i16;  // one\nvar bc: i16; // two\nvar d: i16; // three\nfn f() void {\n  // in\n\n"
        "  g(); //out\n  // last\n}\n",
    ),
    "comments in odd places": (
        "const x = // why\n.{ .a // name\n= 1 // end\n};fn f() void // says\n{ if (a) // cond\nb(); }",
        "const x = // why\n  .{ .a // name\n       = 1, // end\n  };\n"
        "fn f() void // says\n{\n  if (a) // cond\n    b();\n}\n",
    ),
    "a list too long": (
        f"const x = @get_dsd(fabin_dsd, .{{ .extent = {'n' * 40}, .input_queue = {'q' * 40} }});",
        f"const x = @get_dsd(fabin_dsd, .{{\n  .extent = {'n' * 40},\n  .input_queue = {'q' * 40},\n}});\n",
    ),
    "numbers too long": (
        f"const x = [50]u16{{ {', '.join(['1000'] * 50)} }};",
        "const x = [50]u16{\n" + ("  " + ", ".join(["1000"] * 16) + ",\n") * 3 + "  1000, 1000,\n};\n",
    ),
    "a condition too long": (
        f"fn f() void {{ if ({'a' * 60} and {'b' * 60}) {{\nc(); }} }}",
        f"fn f() void {{\n  if ({'a' * 60} and\n      {'b' * 60}) {{\n    c();\n  }}\n}}\n",
    ),
}


def once(text: str) -> str:
    return formatted(Source("a.csl", text))


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_what_it_writes(text, expected):
    assert once(text) == expected
    assert once(expected) == expected


@pytest.mark.parametrize("path", OURS, ids=lambda path: str(path.relative_to(PROJECT)))
def test_all_of_our_own_is_formatted(path):
    text = path.read_text()
    assert once(text) == text


@examples(200)
@given(st.data())
def test_any_blanks_and_comments_between_the_words(data):
    """Whatever is between the words, the program stays (`formatted` checks it), and twice is the same as once."""
    text = data.draw(st.sampled_from([PROGRAM, *(path.read_text() for path in OURS if path.stat().st_size < 3000)]))
    words = [token.text for token in tokenize(Source("a.csl", text))[0]]
    blanks = st.sampled_from([" ", " ", " ", "  ", "\n", "\n", "\n\n", "\n\n\n\n", " // why\n", "\n  // so\n"])
    drawn = data.draw(st.lists(blanks, min_size=len(words), max_size=len(words)))
    made = once("".join(word + blank for word, blank in zip(words, drawn, strict=True)))
    assert once(made) == made
    assert "\n\n\n\n" not in made
    assert all(line == line.rstrip() for line in made.splitlines())


def test_a_syntax_error_is_told():
    with pytest.raises(CslError, match=r"^a\.csl:1:10: expected an expression, got ';'"):
        once("var x =  ;")


def test_a_formatter_with_a_fault_changes_nothing(monkeypatch):
    monkeypatch.setattr(format_module, "_laid_out", lambda source, file: "var x: i16 = 2;\n")
    with pytest.raises(CslError, match=r"^a\.csl: cannot be formatted without a change of the program$"):
        once("var x: i16 = 1;")
