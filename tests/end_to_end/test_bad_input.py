"""Bad input at the command line: one clear error, the right exit code, and nothing that was there is touched.

In the expected messages TMP is the folder of the test and DATA that of the text.
"""

import threading
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.end_to_end.refusals import error, kept, rows
from tests.end_to_end.runs import SEQUENCE, gpt_params

SAVED_THREE_TIMES = [*(f"checkpoint_{step}.mdl" for step in (1, 2, 3)), "checkpoints_index.yaml"]
PREPARE = "`cstool data prepare text --output DIR --sequence_length N` makes a data set from any files"


def loader(folder: object, **changes: Any) -> dict[str, Any]:
    return {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(folder), "batch_size": 24, **changes}


FLOW = "not valid YAML: while parsing a flow sequence expected ',' or ']', but got ':'"


def test_a_params_file_that_is_none_is_refused_in_one_line(cstool, tmp_path):
    for content, expected in (
        ("trainer:\n  init: [1, 2\n  fit: 3\n", f"3:6: {FLOW}"),
        ("trainer: &a\n  init: *a\n", "1: trainer.init must not contain itself"),
    ):
        (tmp_path / "params.yaml").write_text(content)
        assert cstool("run", "-p", tmp_path / "params.yaml").refusal == error(f"TMP/params.yaml:{expected}")
        assert [file.name for file in tmp_path.iterdir()] == ["params.yaml"]


FLAGS = rows("""\
--max_steps -1 => --max_steps: must be at least 1, got -1
--num_steps 0 => --num_steps: must be at least 1, got 0
--eval_steps 0 => --eval_steps: must be at least 1, got 0
--seed -1 => --seed: must be at least 0, got -1
--num_csx 5 => num_csx: must divide the batch_size (48) of TMP/params.yaml: trainer.fit.train_dataloader, got 5
    hint: 4 and 6 are the nearest; all that do: 1, 2, 3, 4, 6, 8, 12, 16, 24, 48
--num_csx 2 --set trainer.fit.train_dataloader.batch_size=47 =>
    num_csx: must divide the batch_size (47) of TMP/params.yaml: trainer.fit.train_dataloader, got 2
    hint: 1 and 47 are the nearest; all that do: 1, 47
--set trainer.fit.train_dataloader.batch_size=2000000000 =>
    TMP/params.yaml: trainer.fit.train_dataloader.batch_size: must be at most the number of samples (60) to fill one
        batch, got 2,000,000,000
    hint: set batch_size to at most 60, or drop_last to false
--load_checkpoint_states wheels =>
    --load_checkpoint_states: must be all or some of model, optimizer, dataloader, got wheels
""")


@pytest.mark.parametrize(("flags", "message"), FLAGS)
def test_a_wrong_flag_is_named(refused, flags, message):
    refused(message, None, *flags.split())


def write_h5(folder: Path, values: Any, examples: int | None = None) -> None:
    with h5py.File(folder / "part.h5", "w") as file:
        file["data"] = values
        file.attrs["n_examples"] = len(values) if examples is None else examples


def samples(count: int = 30, *, token: int = 1, length: int = SEQUENCE) -> Any:
    return np.stack([np.full((count, length), value, np.int32) for value in (token, 1, token)], axis=1)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda folder: folder.rmdir(), error("TMP/d: must be a folder with files *.h5, found nothing there", PREPARE)),
        (lambda folder: write_h5(folder, samples(token=64)), error("TMP/d/part.h5: input_ids must be in [0, 64), got "
         "64 in sample 0 at position 0", "vocab_size of the model must be that of the data set")),
        (lambda folder: write_h5(folder, samples(length=256)), error("TMP/params.yaml: trainer.fit.train_dataloader: "
         "the samples must have at most max_position_embeddings (128) tokens, got 256",
         "max_sequence_length: 128 in the dataloader cuts them")),
    ],
    ids=["missing", "vocabulary", "length"],
)  # fmt: skip
def test_bad_data_is_refused_before_anything_is_saved(cstool, tmp_path, make, expected):
    (tmp_path / "d").mkdir()
    make(tmp_path / "d")
    train = loader(tmp_path / "d", shuffle=False)
    outcome = cstool("run", "-p", gpt_params(tmp_path, tmp_path, fit__train_dataloader=train))
    assert (outcome.code, outcome.stderr, kept(tmp_path / "model_dir")) == (2, expected, {})


def test_a_bad_token_met_on_the_way_leaves_the_checkpoints_before_it(cstool, tmp_path, data):
    (tmp_path / "d").mkdir()
    values = samples(96)
    values[90, 0, 5] = -1
    write_h5(tmp_path / "d", values)
    train = loader(tmp_path / "d", shuffle=False)
    file = gpt_params(tmp_path, data, fit__train_dataloader=train, init__checkpoint={"steps": 1})
    assert cstool("run", "-p", file).stderr == error(
        "TMP/d/part.h5: input_ids must be in [0, 64), got -1 in sample 90 at position 5",
        "vocab_size of the model must be that of the data set",
    )
    assert sorted(kept(tmp_path / "model_dir")) == SAVED_THREE_TIMES


def test_what_does_not_go_together_is_refused(refused, monkeypatch, tmp_path):
    """Samples of different lengths, an image model and text, a model and the memory of the machine."""
    (tmp_path / "d").mkdir()
    write_h5(tmp_path / "d", samples(length=64))
    refused(
        "TMP/params.yaml: trainer.fit.val_dataloader: the samples must have as many tokens as those of "
        "trainer.fit.train_dataloader (128), got 64",
        "max_sequence_length: 64 in every dataloader makes them alike",
        *("--mode", "train_and_eval"),
        fit__val_dataloader=loader(tmp_path / "d"),
    )
    refused(
        "TMP/params.yaml: trainer.fit.train_dataloader.data_processor must deliver x, labels, mask for the model "
        "fc_mnist, got one with input_ids, mask, labels",
        "MNISTDataProcessor does",
        init__model={"name": "fc_mnist", "hidden_size": 32},
    )
    monkeypatch.setattr("cstool.training.machine.budgets.available_memory_bytes", lambda: 2**30)
    refused(
        "the model: its weights, optimizer state and gradients must fit the memory (1,073,741,824 bytes are free), got "
        "54,559,122,176 bytes",
        "--memoryx file keeps them on disk; a narrower model, a smaller vocabulary or fewer layers need less",
        *("--memoryx", "ram"),
        init__model__hidden_size=20_000,
    )


@pytest.mark.parametrize(
    ("started", "where"),
    [
        *((started, "file") for started in (0, 2, 4)),
        *(pytest.param(started, "ram", marks=pytest.mark.lab) for started in (1, 3, 5)),
    ],
)
def test_a_run_that_may_not_start_another_thread_ends_with_one_error(
    cstool, monkeypatch, tmp_path, data, started, where
):
    start, left = threading.Thread.start, iter(range(started))

    def refuse_later(self: threading.Thread) -> None:
        if next(left, None) is None:
            raise RuntimeError("can't start new thread")
        start(self)

    file = gpt_params(tmp_path, data, init__model__num_hidden_layers=1)
    monkeypatch.setattr(threading.Thread, "start", refuse_later)
    outcome = cstool("run", "-p", file, "--memoryx", where, "--lanes", "2", "--num_steps", "1")
    if outcome.code:
        assert (outcome.code, outcome.stderr) == (2, error(
            "the system must let this process start another thread, it refuses",
            "fewer --lanes or --processes need fewer; ulimit -u and ulimit -v say what is allowed",
        ))  # fmt: skip
