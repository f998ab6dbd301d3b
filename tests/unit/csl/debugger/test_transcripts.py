"""Whole sessions with the debugger, as the user sees them."""

import pytest

SESSIONS = {
    "forward": (
        "hang",
        "help break",
        "break arrived at 1.0",
        "continue",
        "step",
        "step",
        "step",
        "print partial",
        "source",
        "next",
        "next",
        "next",
        "event",
        "print partial",
        "event 2",
        "cycle",
        "finish",
        "until 200",
        "continue",
        "list",
        "delete 1",
        "list",
    ),
    "back": (
        "hang",
        "continue",
        "continue",
        "back 100",
        "where",
        "pe 3.0",
        "reverse-step",
        "reverse-event",
        "break ad",
        "break at at 3.0",
        "continue",
        "delete all",
        "break pe 2.0",
        "reverse-continue",
        "rc",
        "rc",
        "rc",
        "rc",
        "back",
        "restart",
        "until 100",
        "back 60",
    ),
    "looks": (
        "wrong",
        "map",
        "tasks",
        "waits",
        "host",
        "break color 1 leaves at 1.0  # a wavelet",
        "c",
        "symbols",
        "print values at all",
        "print sums[1:3] at 0.0:1.0",
        "print weights[3]",
        "memory 64 4 f32",
        "memory 112 2 u16",
        "queues",
        "routes",
        "routes 5",
        "registers",
        "threads",
        "tasks",
        "map",
        "waits",
        "host",
    ),
    "watches": (
        "wrong",
        "watch sums[0:2] at 0.0:1.0",
        "continue",
        "continue",
        "continue",
        "delete all",
        "watch weights at 2.0",
        "continue",
        "continue",
        "reverse-continue",
        "reverse-continue",
    ),
}


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_reads_as_it_should(runs, golden, name):
    run, *commands = SESSIONS[name]
    golden(f"debugger/{name}.txt", runs[run].debug(*commands))


REFUSALS = """\
brek
error: brek: must be a command, there is none of that name
hint: did you mean break?

xyz
error: xyz: must be a command, there is none of that name
hint: help lists them all

wa
error: wa: must be one command, it begins watch, waits

continue now
error: continue: must stand alone, got now

break
error: break: must be followed by what it stops at
hint: help break lists it

break arived
error: break: must be followed by a task, a function, FILE:LINE, color N, pe X.Y or cycle N, got arived
hint: did you mean arrived?

break compute
error: break: must be followed by a task, a function, FILE:LINE, color N, pe X.Y or cycle N, got compute
hint: its tasks: arrived, run

break pe.cs:40
error: pe.cs: must be a file with statements of this program, there is none
hint: did you mean pe.csl?

break pe.csl:500
error: pe.csl:500: must be a line with code, or before one, the last one with code is 50

break color
error: break color: must be followed by N, N arrives or N leaves, got nothing

break color 1 flies
error: break color: must be followed by N, N arrives or N leaves, got 1 flies

break color 7
error: a color must have a route in this program, got 7
hint: with routes: 0, 1

break cycle soon
error: a cycle must be a whole number, got soon

break pe 9.0
error: a PE must be within PE 0.0 to PE 3.0, got 9.0

break arrived at x
error: a PE must be X.Y, a rectangle X.Y:X.Y, or all, got 'x'
hint: for example 1.0, 0.0:3.1

break arrived at 2.0:1.0
error: a rectangle must be from its upper left PE to its lower right one, got 2.0:1.0

watch
error: watch: must be followed by a variable
hint: for example watch y[2] at 1.0

watch weigths
error: weigths: must be a variable of pe.csl, it has none of that name
hint: did you mean weights?

watch weights[
error: weights[: must be NAME or NAME[RANGE]
hint: for example y, y[3], y[2:5], A[1, 0:4]

print
error: print: must be followed by a variable
hint: symbols lists them

print zzz
error: zzz: must be a variable of pe.csl, it has none of that name
hint: its variables: left, next, sums, values, weights

print weights[4]
error: weights[4]: must be within 0 to 3, got 4

print weights[3:2]
error: weights[3:2]: must be within 0 to 3, got 3:2

print weights[x]
error: weights[x]: an index must be a number or FROM:TO, got 'x'

print weights[0, 0]
error: weights[0, 0]: must have an index for each dimension at most, it has one dimension

print next[0]
error: next[0]: must have an index for each dimension at most, it has no dimension

memory
error: memory: must be followed by ADDRESS, N and TYPE, got nothing

memory 0 4 f64
error: memory: TYPE must be u32, i32, f32, u16, i16, f16, u8, i8, got f64

memory 49000 100
error: memory: must be within 49,152 bytes, got 100 elements from 49000 on

delete 3
error: delete: must be followed by the number of a breakpoint, or all, got 3
hint: there are: none

step 0
error: step: N must be at least 1, got 0

back x
error: back: N must be a whole number, got x

until 0
error: until: must be a cycle behind this one, 0, got 0
hint: back goes back

finish
error: finish: a task must run on PE 0.0, none does

pe 0.0:1.0
error: pe: must be one PE, got 0.0:1.0

source
error: source: must be at a statement, or followed by FILE:LINE
hint: step goes on to a statement

source pe.csl:900
error: pe.csl:900: must be a line of the file, it has 62

save
error: save: must be followed by a file

load no_such.json
error: no_such.json: cannot be read, got: No such file or directory
"""


@pytest.mark.parametrize("case", REFUSALS.split("\n\n"), ids=lambda case: case.partition("\n")[0])
def test_what_cannot_be_done_is_said_and_the_session_goes_on(hang, case):
    command, *errors = case.strip().splitlines()
    begin = "cycle 0: the program is loaded, and nothing has happened"
    said = hang.debug(command, "list").splitlines()
    assert said == [begin, f"(debug) {command}", *errors, "(debug) list", "no breakpoint"]


def test_breakpoints_are_saved_for_the_same_program(hang, wrong, tmp_path):
    path = tmp_path / "points.json"
    made = ("break arrived at 1.0:2.0", "break 34", "break color 0 arrives", "break cycle 9", "break pe 3.0")
    listed = hang.debug(*made, "watch weights[1] at 0.0", f"save {path}", "list").partition("(debug) list\n")[2]
    again = hang.debug(f"load {path}", "list").partition("(debug) list\n")[2]
    assert again == listed
    assert len(listed.splitlines()) == 6
    about = "pe.csl for wse2, 4 x 1 PEs, n:4, width:4"
    assert wrong.debug(f"load {path}").splitlines()[2:4] == [
        f"error: {path}: must be of this program ({about}), it is of another one ({about})",
        "hint: the sources may have changed since; lines and names may be others now",
    ]
    for text in ("", "[]", '{"format": 2}', '{"format": 1, "program": "", "digest": "", "points": 3}'):
        path.write_text(text)
        assert hang.debug(f"load {path}").splitlines()[2:4] == [
            f"error: {path}: must hold breakpoints of the debugger, it does not",
            "hint: save FILE writes them",
        ]
    (tmp_path / "folder").mkdir()
    assert f"error: {tmp_path / 'folder'}: cannot be written, got: Is a directory" in hang.debug(
        f"save {tmp_path / 'folder'}"
    )
