"""`cstool finetune`, from a base and a file to answers; what is there stays, and what does not fit is refused."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from cstool.cli.verbs import finetune_needs
from cstool.foundation.host_memory import BUDGET_VARIABLE
from cstool.training.store import CheckpointReader
from tests.end_to_end.refusals import error, rows
from tests.end_to_end.runs import gpt_params


@pytest.fixture
def base(tmp_path, data, cstool, monkeypatch) -> Path:
    """A checkpoint of a model of bytes after two steps, and conversations beside it."""
    monkeypatch.chdir(tmp_path)
    file = gpt_params(
        tmp_path, data, init__model__vocab_size=256, init__loop={"max_steps": 2}, init__checkpoint={"steps": 2}
    )
    assert cstool("run", "-p", file, "--lanes", 1).code == 0
    lines = [json.dumps({"prompt": f"{n % 7} and {n % 5}", "completion": f"{n % 7 + n % 5}."}) for n in range(60)]
    Path("sums.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "model_dir" / "checkpoint_2.mdl").rename("base.mdl")
    return Path("base.mdl")


ASKED = ("base.mdl", "sums.jsonl", "--output", "tuned", "--tokenizer", "bytes", "--steps", 4, "--batch_size", 2)


@pytest.mark.takes("three runs, and answers")
def test_from_a_base_and_a_file_to_answers(base, cstool):
    asked = ("finetune", *ASKED, "--learning_rate", 0.01)
    first = cstool(*asked, "--merge", "merged.mdl", "--shown", 2, "--json")
    assert re.search(
        r"\nTraining takes about \S+ \S+: 4 steps of \S+ \S+, by the time of that evaluation\n", first.stderr
    )
    found = first.document
    assert found["loss_after"] < found["loss_before"]
    assert [answer["prompt"][-1] for answer in found["answers"]] == ["\n", "\n"]
    assert found["run"]["trained_parameters"] < found["run"]["parameters"]
    with CheckpointReader(Path("merged.mdl")) as reader:
        assert not any("lora" in name for name in reader.tensor_names())
    # The same command goes on: there is nothing left to train. So does the params file that it wrote.
    again = cstool(*asked, "--shown", 1)
    assert again.code == 0
    told = (
        r"\nNeeds: about [0-9.]+ MB of memory, [0-9.]+ GB are free; about [0-9.]+ MB of disk, [0-9.]+ [GT]B are free\n"
    )
    assert re.search(told, again.stdout)
    assert "Training takes about" not in again.stdout
    assert f"{found['loss_before']:.4f} before, {found['loss_after']:.4f} after [nats a token]" in again.stdout
    assert again.stdout.count("\n--- held-out prompt ") == 1
    last = cstool("run", "-p", "tuned/finetune.yaml", "--lanes", 1, "--max_steps", 6, "--json").document
    assert (last["first_step"], last["last_step"]) == (4, 6)
    # With other flags it would be another run.
    refused = cstool("finetune", *ASKED, "--learning_rate", 0.02)
    assert (refused.code, refused.stderr) == (
        2,
        error(
            "tuned/finetune.yaml: must be as this command writes it, it is of another one, or was changed",
            "cstool run --params with this file goes on with it as it is; another --output begins anew",
        ),
    )


def test_needs_are_told_and_what_does_not_fit_is_refused_with_a_way_that_does(base, cstool, monkeypatch):
    asked = ("finetune", *ASKED, "--shown", 0)
    monkeypatch.setenv(BUDGET_VARIABLE, "250000000")
    message = (
        "tuned/finetune.yaml: must fit 250 MB of free memory, it does not: the model: its weights, optimizer state and "
        "gradients must fit what a job may take (0 bytes beside the program itself), got {} bytes"
    )
    refused = cstool(*asked)
    kept_bytes = re.search("got ([0-9,]+) bytes", refused.stderr)[1]
    assert (refused.code, refused.stderr) == (2, error(message.format(kept_bytes), "a smaller base would fit"))
    # The first of the cheaper ways with which it would fit is named.
    tried = []
    monkeypatch.setattr(finetune_needs, "_fits", lambda params, graph, _: tried.append((params, graph)) or tried[3:])
    refused = cstool(*asked)
    way = "--batch_size 1 --sequence_length 32 would fit"
    assert (refused.code, refused.stderr) == (2, error(message.format(kept_bytes), way))
    sizes = [(params.dataloaders("train")[0].batch_size, graph.sequence_length) for params, graph in tried]
    assert sizes == [(2, 128), (1, 128), (1, 64), (1, 32)]
    tried.clear()
    monkeypatch.setattr(finetune_needs, "_fits", lambda params, graph, _: bool(params.tuning.adapters))
    refused = cstool("finetune", *ASKED[:2], "--output", "whole", *ASKED[4:], "--full", "--shown", 0)
    assert refused.stderr.endswith("hint: adapters, without --full, would fit\n")
    monkeypatch.delenv(BUDGET_VARIABLE)
    monkeypatch.setattr(finetune_needs.shutil, "disk_usage", lambda path: SimpleNamespace(free=10**6))
    refused = cstool(*asked)
    needed = re.search("about ([0-9.]+ MB)", refused.stderr)[1]
    message = f"tuned: must have about {needed} of free disk, it has 1 MB"
    assert (refused.code, refused.stderr) == (2, error(message, "free some space, or choose another --output"))
    refused = cstool("finetune", *ASKED[:2], "--output", "whole", *ASKED[4:], "--full", "--shown", 0)
    hint = "free some space, or choose another --output; adapters, without --full, need far less"
    assert refused.stderr.endswith(f"\nhint: {hint}\n")


REFUSED = rows("""\
--steps 0 => --steps: must be at least 1, got 0
--batch_size 0 => --batch_size: must be at least 1, got 0
--sequence_length 1 => --sequence_length: must be at least 2, got 1
--epochs 0 => --epochs: must be greater than 0, got 0
--learning_rate -1 => --learning_rate: must be greater than 0, got -1
--val_fraction 0 => --val_fraction: must be greater than 0, and less than 1, got 0
--merge base.mdl => --merge: must be a new file, got base.mdl
--full --merge new.mdl => --merge: must be left out with --full, got new.mdl

""")


@pytest.mark.parametrize(("typed", "message"), REFUSED)
def test_what_makes_no_sense_is_refused(typed, message, cstool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("base.mdl").touch()
    refused = cstool("finetune", "base.mdl", "sums.jsonl", "--output", "tuned", *typed.split())
    assert (refused.code, refused.stderr) == (2, error(message))
    assert not Path("tuned").exists()


def test_a_base_that_does_not_fit(base, cstool):
    refused = cstool("finetune", *ASKED[:4], "--steps", 2)
    assert (refused.code, refused.stderr) == (
        2,
        error(
            "--tokenizer: must be given for base.mdl, beside which there is none, and whose data set is not there",
            "bytes, or the tokenizer.json of the base",
        ),
    )
    assert cstool("finetune", *ASKED, "--shown", 0).code == 0
    refused = cstool("finetune", "tuned/run:latest", *ASKED[1:3], "again", *ASKED[4:])
    assert (refused.code, refused.stderr) == (
        2,
        error(
            "tuned/run/checkpoint_4.mdl: must be a whole model, got adapters",
            "cstool checkpoint merge tuned/run/checkpoint_4.mdl WHOLE.mdl makes one of it",
        ),
    )
