"""The root command: help, version, and what is wrong with a command line."""

import os
import subprocess
import sys

import pytest
import typer

import cstool as package
from cstool.cli.app import new_app
from cstool.cli.report import OTHER_COMMANDS


def commands(command, words=()):
    """Yield the words by which each command is called."""
    yield " ".join(words)
    for word, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*words, word))


@pytest.mark.parametrize("command", list(commands(typer.main.get_command(new_app()))))
def test_every_command_explains_itself(cstool, golden, command):
    golden(f"cli/help/{command.replace(' ', '_') or 'cstool'}.txt", cstool(*command.split(), "--help").said)


def test_help_fits_the_terminal_and_cuts_no_word(monkeypatch):
    def help_of(command, context, columns):
        monkeypatch.setenv("COLUMNS", str(columns))
        return command.get_help(context)

    def check(command, context):
        words = help_of(command, context, 1000).replace(" \\\n", " ").split()
        for columns in (40, 60, 80, 100):
            text = help_of(command, context, columns)
            assert text.replace(" \\\n", " ").split() == words
            # A flag with its choices is never cut, nor is a path.
            long = [line for line in text.splitlines() if len(line) > columns]
            assert [line for line in long if not line.startswith("  -") and len(line.split()) > 2] == []
        for name, below in getattr(command, "commands", {}).items():
            check(below, below.make_context(name, [], parent=context, resilient_parsing=True))

    root = typer.main.get_command(new_app())
    check(root, root.make_context("cstool", [], resilient_parsing=True))


def test_short_help_is_help(cstool):
    assert cstool("run", "-h") == cstool("run", "--help")


def test_version_is_that_of_the_package(cstool):
    assert cstool("--version") == (0, f"cstool {package.__version__}\n", "")


def test_help_and_version_import_nothing_that_takes_long():
    script = (
        "import sys; from cstool.cli import main; code = main(); "
        "heavy = {'numpy', 'numba', 'scipy', 'h5py', 'pydantic', 'yaml', 'rich', 'matplotlib'} & set(sys.modules); "
        "sys.exit(code or ' '.join(sorted(heavy)) or 0)"
    )
    for flag in ("--help", "--version"):
        done = subprocess.run([sys.executable, "-c", script, flag], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "cstool", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"cstool {package.__version__}\n")


LOOK = "hint: `cstool run --help` lists what there is"


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("run", f"cstool run: missing option '--params' / '-p'\n{LOOK}"),
        ("run --params x.yaml --num_csxx 2",
         "cstool run: no such option: --num_csxx\nhint: did you mean --num_csx or --num_steps or --num_beams?"),
        ("run --params x.yaml --lanes 0", f"--lanes: must be auto or a positive count, got 0\n{LOOK}"),
        ("rnu", "cstool: no such command 'rnu'\nhint: did you mean run?"),
        ("run --params", f"cstool run: option '--params' requires an argument\n{LOOK}"),
        ("run --params x.yaml --num_csx x", f"--num_csx: must be a whole number, got 'x'\n{LOOK}"),
        ("data prepare text --output x --sequence_length 4 --val_fraction x",
         "--val_fraction: must be a number, got 'x'\nhint: `cstool data prepare text --help` lists what there is"),
        ("run --params x.yaml --mode trian",
         "--mode: must be one of train, eval, train_and_eval, eval_all, infer, got 'trian'\nhint: did you mean train?"),
        ("run --params x.yaml --logging debgu",
         "--logging: must be one of DEBUG, INFO, WARNING, ERROR, got 'debgu'\nhint: did you mean DEBUG?"),
        ("run --params x.yaml --target_device=CPU",
         "cstool run: no such option: --target_device\n"
         "hint: there is one device only, the cluster in software; leave the flag out"),
        ("fit x.yaml", f"cstool: no such command 'fit'\nhint: {OTHER_COMMANDS['fit']}"),
        ("validate-all x.yaml", f"cstool: no such command 'validate-all'\nhint: {OTHER_COMMANDS['validate_all']}"),
        ("lm_eval", f"cstool: no such command 'lm_eval'\nhint: {OTHER_COMMANDS['lm_eval']}"),
        ("checkpoint move a b", "cstool checkpoint: no such command 'move'\n"
         "hint: `cstool checkpoint copy`, then `cstool checkpoint delete`"),
        ("run x.yaml", "cstool run: got unexpected extra argument(s) (x.yaml)\nhint: did you mean --params x.yaml?"),
        ("estimate x.yaml", "cstool estimate: no such command 'x.yaml'\nhint: did you mean --params x.yaml?"),
        ("compile x.yaml", "cstool compile: no such command 'x.yaml'\nhint: did you mean --params x.yaml?"),
        ("run x.yaml y.yaml", f"cstool run: got unexpected extra argument(s) (x.yaml y.yaml)\n{LOOK}"),
        ("system list x", "cstool system list: got unexpected extra argument(s) (x)\n"
         "hint: `cstool system list --help` lists what there is"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_one_line_and_a_hint(cstool, typed, message):
    assert cstool(*typed.split()) == (2, "", f"error: {message}\n")


@pytest.mark.parametrize("group", [[], ["checkpoint"], ["data"], ["data", "prepare"]])
def test_a_group_without_a_command_shows_its_help_and_fails(cstool, group):
    assert cstool(*group) == (2, "", cstool(*group, "--help").stdout)


def test_a_reader_that_has_left_is_no_reason_for_a_traceback():
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "cstool", "--help"], stdout=write_end, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "")
