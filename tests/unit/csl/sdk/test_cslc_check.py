"""`cslc --check`: all errors of a program, in lines for editors."""

import pytest

from cstool.csl.sdk import cslc

LAYOUT = """\
layout {
  @set_rectangle(2, 1);
  @set_tile_code(0, 0, "left.csl", .{ .n = 1 });
  @set_tile_code(1, 0, "right.csl", .{});
}
"""
LEFT = "param n: u16;\ntask t() void { var x: f32 = n; }\ncomptime { @bind_local_task(t, @get_local_task_id(8)); }\n"
RIGHT = """\
const out = @get_output_queue(2);
var a: [4]f32;
fn f() void { a[0] = 1; g(); }
fn g() void { a[1] = q; }
task t() void { f(); }
task u() void { @fadss(a, a, a); }
comptime { @bind_local_task(t, @get_local_task_id(8)); @bind_local_task(u, @get_local_task_id(9)); }
"""
GOOD = 'fn f() void {}\ncomptime { @export_symbol(f); @comptime_print("said"); }\n'


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """Write files, and check their layout: the exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(files, *flags):
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        code = cslc.main(["--check", "layout.csl", *flags])
        assert not (tmp_path / "out").exists()
        return code, *capsys.readouterr()

    return run


def test_every_program_and_every_function_tells_its_error(check):
    code, said, _ = check({"layout.csl": LAYOUT, "left.csl": LEFT, "right.csl": RIGHT})
    assert code == 1
    assert said.splitlines() == [
        "left.csl:2:30: error: 'x' must be f32, got u16 1",
        "layout.csl:3:3: note: program of PE 0,0",
        "left.csl:2:30: note: convert it: @as(f32, ...)",
        "right.csl:4:22: error: unknown name 'q'",
        "layout.csl:4:3: note: program of PE 1,0",
        "right.csl:6:17: error: unknown builtin @fadss",
        "layout.csl:4:3: note: program of PE 1,0",
        "right.csl:6:17: note: did you mean @fadds?",
    ]


def test_every_file_tells_its_syntax_error(check):
    files = {"layout.csl": LAYOUT.replace("2, 1);", "2, 1)"), "left.csl": LEFT + "\nvar", "right.csl": RIGHT}
    code, said, _ = check(files)
    assert code == 1
    assert said.splitlines() == [
        "layout.csl:2:23: error: expected ';' after this, got '@set_tile_code'",
        "left.csl:5:4: error: expected a name after 'var', got the end of the file",
    ]


def test_nothing_is_said_of_a_good_program(check):
    layout = LAYOUT.replace("right", "left").replace(".{}", ".{ .n = 2 }").replace("}\n}", "}\n}")
    layout = layout.rstrip().removesuffix("}") + '  @export_name("f", fn()void);\n}\n'
    assert check({"layout.csl": layout, "left.csl": f"param n: u16;\n{GOOD}"}) == (0, "", "")


def test_an_error_without_a_place_is_at_the_top_of_the_layout(check):
    assert check({"layout.csl": "const x = 1;\n"}) == (
        1,
        "layout.csl:1:1: error: layout.csl has no layout block\n"
        "layout.csl:1:1: note: cslc takes the file with 'layout { ... }'\n",
        "",
    )


def test_an_error_in_the_library_is_told_at_the_program(check):
    params = 'const m = @import_module("<memcpy/get_params>", .{ .width = 1 });\n'
    code, said, _ = check({"layout.csl": params + LAYOUT})
    assert code == 1
    assert said == "layout.csl:1:11: error: param 'height' of <memcpy/get_params> is not given, and has no default\n"


def test_several_layouts_and_flags(check, capsys):
    code, said, _ = check({"layout.csl": "layout {}\n", "other.csl": "layout {\n"}, "other.csl")
    assert (code, said.count("error:")) == (1, 2)
    assert cslc.main(["layout.csl", "other.csl"]) == 2
    said = "one layout is compiled at a time, got 2: layout.csl other.csl"
    assert capsys.readouterr() == ("", f"cslc: error: {said}\n")
