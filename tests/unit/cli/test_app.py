"""The root command: help, version, and what is wrong with a command line."""

import os
import subprocess
import sys

import pytest
import typer

import cstool as package
from cstool.cli.app import new_app
from cstool.foundation.errors import CstoolError, DataError, Interrupted, NonFiniteError, ParamsError
from cstool.foundation.terminal.other_words import OTHER_COMMANDS
from cstool.foundation.terminal.report import errors_as_messages, print_error
from tests.end_to_end.refusals import error, rows


def commands(command, words=()):
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


def test_short_help_is_help_and_the_version_that_of_the_package(cstool):
    assert cstool("run", "-h") == cstool("run", "--help")
    assert cstool("--version") == (0, f"cstool {package.__version__}\n", "")


def test_help_and_version_import_nothing_that_takes_long():
    script = (
        "import sys; from cstool.cli import main\n"
        "for flag in ('--help', '--version'):\n    sys.argv = ['cstool', flag]\n    assert main() == 0\n"
        "heavy = {'numpy', 'numba', 'scipy', 'h5py', 'pydantic', 'yaml', 'rich', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(' '.join(sorted(heavy)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


REFUSED = rows("""\
run => cstool run: missing option '--params' / '-p'\nhint: LOOK
run --params x.yaml --num_csxx 2 => cstool run: no such option: --num_csxx
    hint: did you mean --num_csx?
run --params x.yaml --lanes 0 => --lanes: must be auto or a positive count, got 0\nhint: LOOK
rnu => cstool: no such command 'rnu'\nhint: did you mean run?
run --params => cstool run: option '--params' requires an argument\nhint: LOOK
run --params x.yaml --num_csx x => --num_csx: must be a whole number, got 'x'\nhint: LOOK
data prepare text --output x --sequence_length 4 --val_fraction x => --val_fraction: must be a number, got 'x'
    hint: `cstool data prepare text --help` lists what there is
run --params x.yaml --mode trian => --mode: must be one of train, eval, train_and_eval, eval_all, infer, got 'trian'
    hint: did you mean train?
run --params x.yaml --logging debgu => --logging: must be one of DEBUG, INFO, WARNING, ERROR, got 'debgu'
    hint: did you mean DEBUG?
run --params x.yaml --target_device=CPU => cstool run: no such option: --target_device
    hint: there is one device only, the cluster in software; leave the flag out
run --params x.yaml --lora_rank 8 => cstool run: no such option: --lora_rank
    hint: --lora rank=16,alpha=32,targets=q,v --checkpoint_path BASE trains adapters beside the weights of a checkpoint
run --params x.yaml --wandb => cstool run: no such option: --wandb
    hint: nothing is sent anywhere; model_dir has the losses for TensorBoard, and `cstool appliance serve`
        a page of jobs
run --params x.yaml --resume => cstool run: no such option: --resume
    hint: nothing is to be said: the same command goes on from the latest state in model_dir
run --params x.yaml --learning-rate 1 => cstool run: no such option: --learning_rate
    hint: --set trainer.init.schedulers=null trainer.init.optimizer.AdamW.learning_rate=VALUE, if the file has AdamW
system list --resume => cstool system list: no such option: --resume
    hint: `cstool system list --help` lists what there is
run --params x.yaml --rezume => cstool run: no such option: --rezume\nhint: LOOK
run CSX --params x.yaml => cstool run: got unexpected extra argument(s) (CSX)
    hint: there is one device only, the cluster in software; leave CSX out
run eval -p x.yaml => cstool run: got unexpected extra argument(s) (eval)\nhint: did you mean --mode eval?
run y.yaml -p x.yaml => cstool run: got unexpected extra argument(s) (y.yaml)\nhint: LOOK
talk => cstool: no such command 'talk'
    hint: `cstool chat CHECKPOINT` talks with a model
plot => cstool: no such command 'plot'
    hint: there is no command for it: compile, validate and `fabric routes` draw with --plot or -o,
        TensorBoard shows losses
report => cstool: no such command 'report'
    hint: there is no command for it: a run ends with its summary, and its folder in model_dir/cerebras_logs keeps it
fit x.yaml => cstool: no such command 'fit'\nhint: OTHER_FIT
validate-all x.yaml => cstool: no such command 'validate-all'\nhint: OTHER_VALIDATE_ALL
lm_eval => cstool: no such command 'lm_eval'\nhint: OTHER_LM_EVAL
checkpoint move a b => cstool checkpoint: no such command 'move'
    hint: `cstool checkpoint copy`, then `cstool checkpoint delete`
run x.yaml => cstool run: got unexpected extra argument(s) (x.yaml)\nhint: did you mean --params x.yaml?
estimate x.yaml => cstool estimate: no such command 'x.yaml'\nhint: did you mean --params x.yaml?
compile x.yaml => cstool compile: no such command 'x.yaml'\nhint: did you mean --params x.yaml?
run x.yaml y.yaml => cstool run: got unexpected extra argument(s) (x.yaml y.yaml)\nhint: LOOK
system list x => cstool system list: got unexpected extra argument(s) (x)
    hint: `cstool system list --help` lists what there is
""")
WORDS = {f"OTHER_{name.upper()}": OTHER_COMMANDS[name] for name in ("fit", "validate_all", "lm_eval")}
WORDS["LOOK"] = "`cstool run --help` lists what there is"


@pytest.mark.parametrize(("typed", "message"), REFUSED)
def test_a_wrong_command_line_is_one_line_and_a_hint(cstool, typed, message):
    for word, text in WORDS.items():
        message = message.replace(word, text)
    assert cstool(*typed.split()).refusal == error(message)


@pytest.mark.parametrize("group", [[], ["checkpoint"], ["data"], ["data", "prepare"]])
def test_a_group_without_a_command_shows_its_help_and_fails(cstool, group):
    assert cstool(*group) == (2, "", cstool(*group, "--help").stdout)


def test_the_package_runs_as_a_module_and_a_reader_that_has_left_is_no_reason_for_a_traceback():
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "cstool", "--help"], stdout=write_end, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "")


# Errors become messages.


def outcome_of(error: CstoolError, capsys: pytest.CaptureFixture[str], debug: bool = False) -> tuple[int, str]:
    with pytest.raises(typer.Exit) as exit_, errors_as_messages(debug):
        raise error
    return exit_.value.exit_code, capsys.readouterr().err


TWO = ParamsError([("x.yaml:3: a: unknown key", "did you mean b?"), ("x.yaml:4: c: missing", None)])
ERRORS = [
    (DataError("a: no such folder", "`make` makes it"), 2, "error: a: no such folder\nhint: `make` makes it\n"),
    (CstoolError("a: must be b, got c"), 2, "error: a: must be b, got c\n"),
    (TWO, 2, "error: x.yaml:3: a: unknown key\nhint: did you mean b?\nerror: x.yaml:4: c: missing\n"),
    (NonFiniteError("step 3: loss is nan"), 1, "error: step 3: loss is nan\n"),
    (
        Interrupted("stopped", "the same command continues"),
        130,
        "interrupted: stopped\nhint: the same command continues\n",
    ),
]


@pytest.mark.parametrize(("error", "code", "text"), ERRORS)
def test_an_error_is_its_messages_each_with_its_hint_and_an_exit_code(capsys, error, code, text):
    assert outcome_of(error, capsys) == (code, text)


def test_debug_adds_the_traceback(capsys):
    shown = outcome_of(CstoolError("a: must be b, got c"), capsys, debug=True)[1]
    assert shown.startswith("Traceback (most recent call last):\n")
    assert shown.endswith("\nerror: a: must be b, got c\n")


def test_a_bug_is_not_turned_into_a_message():
    with pytest.raises(ZeroDivisionError), errors_as_messages(False):
        raise ZeroDivisionError


def test_a_hint_has_no_label_of_its_own(capsys):
    print_error("broken\nhint: mend it", label="note")
    assert capsys.readouterr().err == "note: broken\nhint: mend it\n"


@pytest.mark.parametrize("mode", ["train", "eval", "train_and_eval", "eval_all"])
def test_only_answers_have_weights_of_8_and_4_bits(mode, cstool):
    rule = f"--precision: must be float32 or bfloat16 with --mode {mode}, got q4_0"
    found = cstool("run", "--params", "gpt_tiny", "--mode", mode, "--precision", "q4_0").refusal
    assert found == error(rule, "weights of 8 or 4 bits are for --mode infer")
