"""Every command has examples in its help, and each of them works as it is written."""

import io
import json
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from cstool.appliance.queue.job import FAILED, SUCCEEDED
from cstool.cli.app import new_app
from cstool.csl.sdk.artifact import write_program
from cstool.foundation.terminal.help_text import examples_of
from tests.appliances import end_processes_of
from tests.end_to_end.refusals import without_machine_warnings
from tests.end_to_end.worked import PROJECT, run, save_checkpoints, write_data, write_params
from tests.reference.preprocessing_cases import HOOKS, write_tokenizer
from tests.shown_jobs import Shown
from tests.stub_client import StubClient
from tests.unit.csl.fabric.waits import sender_and_receiver
from tests.unit.training.data.chat_samples import messages

INTEROP = PROJECT / "tests" / "interop"
FINETUNING = f"""\
setup:
  data: {{type: local, source: chats.jsonl}}
  mode: finetuning
  output_dir: datasets/finetuning
processing:
  huggingface_tokenizer: tokenizer
  read_hook: {HOOKS}chat_read_hook
  read_hook_kwargs: {{multi_turn_key: messages, multi_turn_role_key: role, multi_turn_content_key: content}}
"""
SMALL = {"hidden_size": 16, "num_heads": 2, "num_hidden_layers": 1, "filter_size": 32}


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield a command and all below it, by how they are typed."""
    yield name, command
    for word, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{name} {word}")


COMMANDS = dict(commands(typer.main.get_command(new_app()), "cstool"))
EXAMPLES = dict.fromkeys(example for command in COMMANDS.values() for example in examples_of(command.epilog))


def test_every_command_has_one_to_three_examples_of_itself():
    for name, command in COMMANDS.items():
        examples = examples_of(command.epilog)
        assert 1 <= len(examples) <= 3, name
        assert all(example.startswith(name) for example in examples)


def shrink(folder: Path) -> None:
    """Give the params files that examples train with few weights and short steps."""
    file = folder / "params" / "gpt_tiny.yaml"
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    init, fit = document["trainer"]["init"], document["trainer"]["fit"]
    init["model"].update(SMALL)
    init["loop"]["eval_steps"] = 2
    for loader in fit.values():
        loader["batch_size"] = 4
    file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    # What `checkpoint convert` reads is a folder with the weights of the file above.
    (folder / "params" / "gpt2_small.yaml").write_bytes(file.read_bytes())


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """A folder of somebody who worked before: books, pairs, a data set, three checkpoints, files from elsewhere."""
    folder = tmp_path_factory.mktemp("work")
    write_params(folder)
    shrink(folder)
    write_data(folder)
    save_checkpoints(folder / "params" / "gpt_tiny.yaml", folder / "checkpoints" / "gpt_tiny", (200, 400, 600))
    shutil.copy(INTEROP / "gpt2_small_legacy.yaml", folder / "params_gpt2.yaml")
    shutil.copy(PROJECT / "cstool" / "model" / "system" / "systems" / "cs2.yaml", folder / "my_system.yaml")
    (folder / "pairs.jsonl").write_text('{"prompt": "1+1=", "chosen": "2", "rejected": "3"}\n' * 4)
    chats = [{"messages": messages(f"{n % 7} and {n % 5}?", f"{n % 7 + n % 5}.")} for n in range(20)]
    (folder / "chats.jsonl").write_text("".join(f"{json.dumps(chat)}\n" for chat in chats))
    write_tokenizer(folder / "tokenizer", template="llama", begins=True)
    (folder / "finetuning.yaml").write_text(FINETUNING)
    alpaca = [{"instruction": f"Add {n} and 1.", "output": f"{n + 1}."} for n in range(20)]
    (folder / "alpaca.json").write_text(json.dumps(alpaca))
    (folder / "kept").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        last = "checkpoints/gpt_tiny/checkpoint_600.mdl"
        assert run("checkpoint", "copy", last, "kept") == 0
        assert run("checkpoint", "convert", last, "gpt2_folder", "--to", "hf") == 0
        shutil.copy("gpt2_folder/tokenizer.json", "tokenizer.json")
        tuned = ("--lora", "rank=2,targets=q", "--checkpoint_path", last, "--max_steps", "1")
        assert run("run", "--params", "params/gpt_tiny.yaml", *tuned, "--model_dir", "checkpoints/gpt_tiny_lora") == 0
        made = ("--output", "datasets/chats", "--sequence_length", "64")
        assert run("data", "prepare", "instruct", "chats.jsonl", *made) == 0
        for name in ("gpt2_small.json", "a.json", "b.json"):
            assert run("compile", "--params", "params/gpt2_small.yaml", "--out", name) == 0
        write_fabric_program(folder / "gemv")
        assert run("fabric", "run", "gemv", "--trace", "gemv.trace") == 0
        Path("commands.txt").write_text("continue\nwaits\n")
        shutil.copytree("gemv/out", "out")
        shutil.copy("gemv/sim_stats.json", "sim_stats.json")
    return folder


def write_fabric_program(folder: Path) -> None:
    """Write two PEs, one of which sends to the other, compiled, with scripts that run them."""
    write_program(sender_and_receiver(5), folder / "out")
    (folder / "run.py").write_text(
        "from cerebras.sdk.runtime.sdkruntimepybind import SdkRuntime\n"
        "runner = SdkRuntime('out')\nrunner.load()\nrunner.run()\nrunner.stop()\n"
    )
    for arch in ("wse2", "wse3"):
        (folder / f"commands_{arch}.sh").write_text("cs_python run.py\n")


@pytest.fixture
def jobs(tmp_path, monkeypatch) -> Iterator[Callable[[str], None]]:
    """Make an appliance with the jobs that an example names: they wait to be cancelled, else they have ended."""
    root = tmp_path / "appliance"
    monkeypatch.setenv("CSTOOL_APPLIANCE", str(root))
    monkeypatch.setattr("cstool.appliance.page.serve.serve", lambda root, *_, **__: print(root.folder))

    def make(example: str) -> None:
        with Shown(root, None) as shown:
            for start in ("wsjob-4k", "wsjob-7p"):
                monkeypatch.setattr("tests.shown_jobs.name_of", lambda _, start=start: start.ljust(28, "a"))
                name = shown.submit(labels={"team": "a"})
                shown.log(name, "a line\n")
                if "cancel" not in example:
                    shown.start(name, [0])
                    phase = FAILED if "FAILED" in example else SUCCEEDED
                    shown.end(name, phase, exit_code=0)

    try:
        yield make
    finally:
        if root.exists():
            end_processes_of(root)


@pytest.mark.lab
@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_works_as_it_is_written(prepared, tmp_path, monkeypatch, example, cstool, jobs):
    folder = tmp_path / "work"
    shutil.copytree(prepared, folder)
    monkeypatch.chdir(folder)
    # The stock files by name are those that were shrunk.
    monkeypatch.setattr("cstool.model.params.load.FOLDER", folder / "params")
    for name in ("text", "chats"):
        if f"datasets/{name}" in example and "prepare" in example:
            shutil.rmtree(f"datasets/{name}")
    if example.startswith(("cstool job", "cstool appliance")):
        jobs(example)
    if example.startswith("cstool serve"):
        # It ends as soon as it can be reached.
        monkeypatch.setattr("cstool.serving.server.DrainingServer.run", lambda server, sockets: None)
    if example == "cstool fabric debug gemv":
        monkeypatch.setattr("sys.stdin", io.StringIO("help\n"))
    if example.startswith("cstool chat"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"def \n")))
        monkeypatch.setattr("cstool.serving.client.Client.models", lambda _: ["gpt"])
        monkeypatch.setattr("cstool.serving.client.Client.events", lambda *_: (yield {"choices": [{"text": "f"}]}))
    if example.startswith("cstool bench serve"):
        monkeypatch.setattr("cstool.serving.client.Client", StubClient)
    if example == "cstool job list":
        assert cstool("job", "submit", "--params", "gpt_tiny", "--num_steps", "1").code == 0
    command, _, target = example.partition(" > ")
    with Path(target or "printed").open("w", encoding="utf-8") as out, redirect_stdout(out):
        outcome = cstool(*shlex.split(command)[1:])
    assert outcome.code == 0, outcome.stderr
    # Of jobs it is said, too, that nobody is there who would start them; of a model, that it has no template.
    said = [line for line in without_machine_warnings(outcome.stderr) if " INFO:   " not in line]
    assert [line for line in said if not line.startswith(("job wsjob-", "note: "))] == []
    assert Path(target or "printed").stat().st_size
