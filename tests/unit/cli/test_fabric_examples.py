"""`cstool fabric examples`, with programs made here; those of examples/csl are tried by test_csl_page.py."""

from pathlib import Path

import numpy as np
import pytest

from cstool.csl.sdk import examples
from cstool.csl.sdk.artifact import write_program
from tests.end_to_end.refusals import error, rows
from tests.unit.csl.fabric.waits import sender_and_receiver

RUN = '''#!/usr/bin/env cs_python
"""Sends five words, beside NumPy.

Source: nobody, Some Words,
  2026

Published: 3 us a word on a wafer (nobody)
"""

import sys
import numpy as np
from cerebras.sdk.runtime.sdkruntimepybind import SdkRuntime

sys.path.append("..")
from host import check

runner = SdkRuntime("out")
runner.load()
runner.run()
runner.stop()
sent = np.arange(6.0).reshape(2, 3)
check(sent + 0.25, sent, 0.5, picture=sent, of="words", cycles=85, per="a word")
'''
HOST = Path(__file__).parents[3] / "examples" / "csl" / "host.py"


@pytest.fixture
def programs(folder, monkeypatch):
    """The current folder is a checkout with the programs `words`, with a shared folder, and `plain`."""
    monkeypatch.setattr(examples, "CHECKOUT", folder / "nowhere")
    where = Path("examples/csl")
    write_program(sender_and_receiver(5), where / "words" / "compiled")
    (where / "words" / "run.py").write_text(RUN)
    (where / "words" / "sim.log").write_text("of an earlier run")
    (where / "host.py").write_bytes(HOST.read_bytes())
    (where / "README.md").write_text("")
    (where / "shared").mkdir()
    (where / "shared" / "routes.csl").write_text("")
    (where / "plain").mkdir()
    (where / "plain" / "run.py").write_text('"""Says nothing."""\n')
    for arch in ("wse2", "wse3"):
        (where / "words" / f"commands_{arch}.sh").write_text("cp -r compiled out && cs_python run.py\n")
        (where / "plain" / f"commands_{arch}.sh").write_text("exit 3\n")
    return where


def test_programs_are_listed_with_what_their_scripts_say(cstool, programs, golden):
    done = cstool("fabric", "examples")
    assert (done.code, done.stderr) == (0, "")
    golden("cli/fabric_examples.txt", done.stdout)
    (plain, words) = cstool("fabric", "examples", "--json").document["examples"]
    assert (plain["name"], plain["summary"], plain["source"]) == ("plain", "Says nothing", "")
    assert words["published"] == "3 us a word on a wafer (nobody)"


def test_a_program_is_copied_run_compared_and_drawn(cstool, programs, golden):
    before = sorted(programs.rglob("*"))
    done = cstool("fabric", "examples", "words")
    assert (done.code, done.stderr) == (0, "")
    golden("cli/fabric_example.txt", done.stdout)
    assert sorted(programs.rglob("*")) == before
    assert sorted(path.name for path in Path("words_run").iterdir()) == ["host.py", "shared", "words", "words.png"]
    assert Path("words_run/words.png").read_bytes().startswith(b"\x89PNG")
    assert np.load("words_run/words/result.npz")["found"][1, 2] == 5.25


def test_a_program_for_json(cstool, programs):
    document = cstool("fabric", "examples", "words", "-o", "there", "--json", "--arch", "wse3").document
    assert document["check"] == {"difference": 0.25, "tolerance": 0.5}
    assert document["picture"] == "there/words.png"
    assert (document["simulated"]["cycles_measured"], document["simulated"]["measured_of"]) == (85, "a word")


def test_a_program_that_fails_has_no_numbers(cstool, programs):
    done = cstool("fabric", "examples", "plain")
    assert done == (
        1,
        "\nplain: plain_run/plain\n\ncomputes  Says nothing\n",
        "error: plain_run/plain/commands_wse2.sh: must end with exit code 0, ended with 3\n"
        "hint: see what it said above\n",
    )


@pytest.mark.parametrize("found", [[[0.0, 1.0]], [0.0, np.nan], [0.0, 2.0]])
def test_another_result_than_the_twins_is_none(cstool, programs, found):
    """Of another shape, no number, too far off: each is an error of the script."""
    script = programs / "words" / "run.py"
    script.write_text(
        script.read_text().replace(
            "check(sent + 0.25, sent", f"nan = np.nan\ncheck(np.array({found}), np.array([0.0, 1.0])"
        )
    )
    done = cstool("fabric", "examples", "words")
    assert done.code == 1
    assert "AssertionError" in done.stdout
    assert "check " not in done.stdout


REFUSED = rows("""\
wrods => NAME: must be a program under examples/csl, got 'wrods'\nhint: did you mean words?
zzzzzz => NAME: must be a program under examples/csl, got 'zzzzzz'\nhint: `cstool fabric examples` lists all
words -o examples => examples: must be a new folder, there is one already\nhint: -o FOLDER names another
words -o /dev/null/x => /dev/null/x: cannot be written: Not a directory
-o x => --output: must come with NAME, which says what is run\nhint: cstool fabric examples NAME -o FOLDER
""")


@pytest.mark.parametrize(("typed", "message"), REFUSED)
def test_what_cannot_be_run_is_said(cstool, programs, typed, message):
    assert cstool("fabric", "examples", *typed.split()).refusal == error(message)


def test_without_a_checkout_there_are_none(cstool, folder, monkeypatch):
    monkeypatch.setattr(examples, "CHECKOUT", folder)
    assert cstool("fabric", "examples").refusal == error(
        "examples/csl: must be in a checkout of cstool or below the current folder, there is none\n"
        "hint: an installed package has no programs: type the command in a checkout of cstool's sources"
    )


def test_a_damaged_script_and_a_damaged_result_are_said(cstool, programs, monkeypatch):
    (programs / "plain" / "run.py").write_text('"""Says')
    assert cstool("fabric", "examples").refusal == error(
        "examples/csl/plain/run.py: must be a script in Python, got: "
        "unterminated triple-quoted string literal (detected at line 1) (<unknown>, line 1)"
    )
    (programs / "words" / "commands_wse2.sh").write_text("echo x > result.npz\n")
    assert cstool("fabric", "examples", "words").refusal == error(
        "words_run/words/result.npz: must be written by host.check, it is not, or is damaged\nhint: run it again"
    )
