"""What a shell offers behind a word that is begun."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cstool.foundation.terminal.completion import normalize_typed_flags
from cstool.model.commands import completion
from tests.end_to_end.refusals import rows
from tests.shown_jobs import Shown

COMMANDS = [
    *("data", "model", "config", "run", "finetune", "serve", "chat", "bench", "job", "appliance"),
    *("checkpoint", "validate", "estimate", "compile", "system", "fabric"),
]


@pytest.fixture(autouse=True)
def _files(folder: Path) -> None:
    for name in (
        *("params/gpt.yaml", "params/gpt3.yml", "params/notes.txt", "params/.hidden.yaml", "packed/a.json"),
        *("checkpoints/gpt/checkpoint_5.mdl", "checkpoints/gpt/memoryx.h5", "checkpoints/gpt/run.log"),
        *("spread/memoryx_1_of_12.h5", "spread/memoryx_1_of_12.h5.commit", "spread/memoryx_of_12.h5"),
        *("checkpoints/old/runs/small/checkpoint_1.mdl", "one/below/only.yaml", "blank/a file.yaml", "blank/b.yaml"),
    ):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    Path("empty").mkdir()


OFFERED = rows("""\
params => blank/ checkpoints/ empty/ one/ packed/ params/ spread/
params pa => packed/ params/
params par => params/gpt.yaml params/gpt3.yml
params params/gpt3 => params/gpt3.yml
params params/.h => params/.hidden.yaml
params ./par => ./params/gpt.yaml ./params/gpt3.yml
params on => one/below/only.yaml
params empty =>
params no/where =>
params blank/ =>
checkpoint ch => checkpoints/gpt/ checkpoints/old/
checkpoint checkpoints/g => checkpoints/gpt/checkpoint_5.mdl checkpoints/gpt/memoryx.h5
checkpoint spr => spread/memoryx_1_of_12.h5
checkpoint checkpoints/gpt: => checkpoints/gpt:latest checkpoints/gpt:5
checkpoint checkpoints/gpt:la => checkpoints/gpt:latest
checkpoint checkpoints/gpt:6 =>
checkpoint checkpoints/old: =>
model_dir ch => checkpoints/gpt checkpoints/old/
model_dir checkpoints/o => checkpoints/old/runs/small
artifact packed/ => packed/a.json
system => cs1 cs2 cs3
system cs3 => cs3
system par => params/gpt.yaml params/gpt3.yml
""")


@pytest.mark.parametrize(("begun", "offered"), OFFERED)
def test_files_that_the_command_reads_are_offered_and_folders_on_the_way(begun, offered):
    kind, _, incomplete = begun.partition(" ")
    assert getattr(completion, f"complete_{kind}")(incomplete) == offered.split()


def test_flags_that_are_typed_to_the_end_are_looked_up_with_underscores():
    environment = {"COMP_WORDS": "cstool\nrun\n--execution-mode\n--num-c", "OTHER": " --num-csx "}
    normalize_typed_flags(environment)
    assert environment == {"COMP_WORDS": "cstool\nrun\n--execution_mode\n--num-c", "OTHER": " --num-csx "}


def asked(shell: str, typed: str) -> dict[str, str]:
    """Return what a shell puts into the environment when it asks."""
    words = typed.split(" ")
    found = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1), "_TYPER_COMPLETE_ARGS": typed}
    return {**found, "_TYPER_COMPLETE_FISH_ACTION": "get-args", "_CSTOOL_COMPLETE": f"complete_{shell}"}


@pytest.fixture
def offered_by(cstool, monkeypatch, capsys):
    """Return the lines that the program answers when a shell asks it."""

    def call(shell: str, typed: str) -> list[str]:
        for name, value in asked(shell, typed).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit, match=r"^0$"):
            cstool()
        found = capsys.readouterr()
        assert found.err == ""
        return found.out.splitlines()

    return call


OF_BASH = [("cstool ", " ".join(COMMANDS))] + rows("""\
cstool checkpoint in => info
cstool run --mode tr => train train_and_eval
cstool run --num_ => --num_csx --num_steps --num_beams
cstool run --num- => --num-csx --num-steps --num-beams
cstool run --execution-mode p => pipelined
cstool --show-c => --show-completion
cstool config show params/gpt3 => params/gpt3.yml
cstool run --set trainer.init.seed=1 --params params/gpt3 => params/gpt3.yml
cstool compile --system cs => cs1 cs2 cs3
""")


@pytest.mark.parametrize(("typed", "offered"), OF_BASH)
def test_bash_is_offered_commands_flags_choices_and_files(offered_by, typed, offered):
    assert offered_by("bash", typed) == offered.split()


def test_names_of_jobs_are_offered_of_the_appliance_that_was_typed(offered_by, tmp_path):
    with Shown(tmp_path / "elsewhere") as shown:
        names = [shown.submit(number) for number in range(2)]
    root = tmp_path / "elsewhere"
    assert offered_by("bash", f"cstool job get --root {root} wsjob-") == names[::-1]
    assert offered_by("bash", f"cstool job cancel --root {root} {names[0][:10]}") == names[:1]
    assert offered_by("bash", f"cstool job wait --root {tmp_path / 'none'} ws") == [""]


def test_zsh_and_fish_are_offered_them_too(offered_by):
    assert offered_by("zsh", "cstool run --mode tr") == ['_arguments \'*: :(("train"', '"train_and_eval"))\'']
    assert offered_by("fish", "cstool run --mode tr") == ["train", "train_and_eval"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_with_the_script_that_it_is_given(tmp_path):
    """In a real shell: the script is read, and the function that it names is called as Tab calls it."""
    program = tmp_path / "bin" / "cstool"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cstool "$@"\n')
    program.chmod(0o755)
    script = """
        source <(_CSTOOL_COMPLETE=source_bash cstool)
        function=$(complete -p cstool | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
        COMP_WORDS=(cstool run --params par) COMP_CWORD=3
        "$function" cstool
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    environment = {**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("params/gpt.yaml\nparams/gpt3.yml\n", "")


@pytest.mark.parametrize("shell", ["bash", pytest.param("zsh", marks=pytest.mark.lab), "fish"])
def test_the_script_for_a_shell_is_installed_in_its_folder(tmp_path, shell):
    done = subprocess.run(
        [sys.executable, "-m", "cstool", "--install-completion", shell],
        env={**os.environ, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("Completion will take effect once you restart the terminal\n")
    written = [path for path in tmp_path.rglob("*") if path.is_file() and "_CSTOOL_COMPLETE" in path.read_text()]
    assert len(written) == 1
