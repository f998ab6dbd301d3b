"""`cstool run --mode infer` of a trained DPR: vectors of questions and of contexts, those that its loss compares."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from cstool import ask, generate, load_params, predict
from cstool.foundation.errors import InferenceError
from cstool.model.graphs import SampleForm, build_graph
from cstool.training.store import CheckpointReader
from tests.contract.refusal import refusal
from tests.end_to_end.curves import PARTS, write_dpr
from tests.end_to_end.ranks import by_mpirun
from tests.end_to_end.ranks import run as run_command
from tests.end_to_end.refusals import error, rows
from tests.end_to_end.runs import run_file
from tests.reference.dpr_case import CASES, ENCODER
from tests.reference.models import output

BATCH, CONTEXTS, QUESTION, CONTEXT = 4, 2, 6, 9
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, *(f"w{number}" for number in range(len(SPECIAL), ENCODER["vocab_size"]))]
CASE_NAMES = {"cls": "cls", "mean": "mean, mutual", "pooler": "pooler", "one": "one encoder"}


def samples() -> dict[str, np.ndarray]:
    """Questions and contexts of words, of different lengths: data_0 (n, 3, S), data_1 (n, 3, C, S')."""
    rng, found = np.random.default_rng(8), {}
    for name, shape in (("data_0", (QUESTION,)), ("data_1", (CONTEXTS, CONTEXT))):
        lengths = rng.integers(3, shape[-1] + 1, (BATCH, *shape[:-1], 1))
        mask = np.arange(shape[-1]) < lengths
        ids = rng.integers(len(SPECIAL), len(WORDS), mask.shape) * mask
        found[name] = np.stack([ids, mask, np.zeros_like(ids)], axis=1).astype(np.int32)
    return found


def texts(table: np.ndarray) -> list[str]:
    """The texts of a table, one after the other."""
    rows = table[:, 0].reshape(-1, table.shape[-1])
    return [" ".join(WORDS[token] for token in row if token) for row in rows]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with a vocabulary, samples and the params of each case."""
    folder = tmp_path_factory.mktemp("dpr")
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (folder / "data").mkdir()
    write_dpr(folder / "data", samples())
    loader = {"data_processor": "DPRHDF5DataProcessor", "data_dir": str(folder / "data"), "batch_size": BATCH}
    for name, case in CASE_NAMES.items():
        init = {**CASES[case], "loop": {"max_steps": 3}, "checkpoint": {"steps": 3}}
        init |= {"model_dir": str(folder / name), "seed": 4}
        trainer = {"init": init, "fit": {"train_dataloader": loader, "val_dataloader": loader}}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump({"trainer": trainer}))
    return folder


@pytest.fixture(
    scope="module", params=[name if name != "cls" else pytest.param(name, marks=pytest.mark.lab) for name in CASE_NAMES]
)
def trained(request, folder) -> tuple[str, Path]:
    """A case and its checkpoint after three steps, and what its last evaluation said beside it."""
    name = request.param
    result = run_file(folder / f"{name}.yaml", mode="train_and_eval")
    (folder / f"{name}.loss").write_text(str(result.evaluations[-1]["loss"]))
    return name, folder / name / "checkpoint_3.mdl"


def vectors(path: Path, folder: Path, side: str, **more: Any) -> np.ndarray:
    """Those of all samples."""
    asked = texts(samples()["data_0" if side == "question" else "data_1"])
    given: dict[str, Any] = {"tokenizer": folder / "vocab.txt", "special_tokens": False, "progress": "none", **more}
    return ask(path, asked, embed=side, **given).embeddings


def twin(path: Path, model: Any) -> list[np.ndarray]:
    """What training hands to the loss, in float64: vectors of questions and of contexts, with padding beside them."""
    graph = build_graph(model, SampleForm(QUESTION, contexts=CONTEXTS, context_tokens=CONTEXT))
    with CheckpointReader(path) as reader:
        weights = {name: reader.read(f"model.{name}").astype(np.float64) for name in graph.weights}
    values: dict[str, np.ndarray] = {}
    for prefix, table in zip(("questions_", "ctx_"), samples().values(), strict=True):
        values |= {f"{prefix}{part}": table[:, place].reshape(-1) for place, part in enumerate(PARTS)}
    *ops, loss = graph.ops
    for op in ops:
        sequence = QUESTION if op.outputs[0].startswith("questions_") else CONTEXT
        made = output(op, [values[name] for name in op.inputs], [weights[name] for name in op.weights], sequence, None)
        values |= zip(op.outputs, made if isinstance(made, tuple) else (made,), strict=True)
    return [values[name] for name in loss.inputs[:2]]


def test_they_are_those_that_the_loss_compares(folder, trained):
    name, path = trained
    model = load_params(folder / f"{name}.yaml").model
    asked, given = vectors(path, folder, "question"), vectors(path, folder, "context")
    for found, expected in zip((asked, given), twin(path, model), strict=True):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=2e-6)
    scores = asked.astype(np.float64) @ given.T.astype(np.float64) / model.softmax_temperature
    chosen = scores[np.arange(BATCH), ::CONTEXTS]
    loss = np.log(np.exp(scores).sum(axis=1)) - np.diag(chosen)
    if model.mutual_information:
        back = np.log(np.exp(chosen).sum(axis=0)) - np.diag(chosen)
        loss = (loss * CONTEXTS + back) / (1 + CONTEXTS)
    assert loss.mean() == pytest.approx(float((folder / f"{name}.loss").read_text()), rel=1e-5)


def test_they_have_the_same_bits_however_they_are_asked_for(cstool, folder, trained, tmp_path):
    name, path = trained
    asked = texts(samples()["data_1"])
    alone = [
        ask(path, text, embed="context", tokenizer=folder / "vocab.txt", special_tokens=False, progress="none")
        for text in asked
    ]
    expected = np.concatenate([answers.embeddings for answers in alone])
    assert expected.tobytes() == vectors(path, folder, "context").tobytes()
    words = [word for text in asked for word in ("--prompt", text)]
    typed = (*words, "--mode", "infer", "--embed", "context", "--tokenizer", folder / "vocab.txt")
    for way in ((), ("--lanes", 1, "--batch_size", 3), ("--memoryx", "file", "--model_dir", tmp_path)):
        file = tmp_path / "v.npy"
        given = ("--checkpoint_path", path, "--output", file, "--no_special_tokens")
        outcome = cstool("run", "-p", folder / f"{name}.yaml", *typed, *given, *way)
        assert (outcome.code, outcome.stdout) == (0, ""), outcome.stderr
        assert np.load(file).tobytes() == expected.tobytes(), way


def test_one_encoder_reads_both_and_two_do_not(folder):
    same: dict[str, bool] = {}
    for name in ("one", "cls"):
        run_file(folder / f"{name}.yaml")
        given = {"tokenizer": folder / "vocab.txt", "progress": "none"}
        asked, read = (
            ask(folder / name, "w7 w8 w9", embed=side, **given).embeddings for side in ("question", "context")
        )
        same[name] = asked.tobytes() == read.tobytes()
    assert same == {"one": True, "cls": False}


def test_a_title_and_a_text_are_a_pair_and_lines_come_from_files(cstool, folder, trained, tmp_path):
    _, path = trained
    lines = [{"prompt": "w7 w8", "pair": "w9 w10"}, {"prompt": "w7 w8 w9 w10"}]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    typed = ("--prompt_file", tmp_path / "p.jsonl", "--embed", "context", "--tokenizer", folder / "vocab.txt")
    outcome = cstool("run", "--checkpoint_path", path, "--mode", "infer", *typed, "--output", tmp_path / "a.jsonl")
    assert outcome.code == 0, outcome.stderr
    found = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [(each["prompt"], each["pair"]) for each in found] == [("w7 w8", "w9 w10"), ("w7 w8 w9 w10", None)]
    assert len(found[0]["embedding"]) == ENCODER["hidden_size"]
    assert found[0]["embedding"] != found[1]["embedding"]


@pytest.mark.lab
def test_two_ranks_answer_as_one_process(folder, trained, tmp_path):
    name, path = trained
    typed = ["--checkpoint_path", str(path), "--mode", "infer", "--embed", "question", "--prompt", "w7 w8", "--json"]
    typed += ["--tokenizer", str(folder / "vocab.txt"), "--model_dir", str(tmp_path)]
    found = json.loads(run_command(*by_mpirun(folder / f"{name}.yaml", *typed)).output)
    alone = ask(path, "w7 w8", embed="question", tokenizer=folder / "vocab.txt", progress="none")
    assert [answer["embedding"] for answer in found["answers"]] == alone.embeddings.tolist()
    assert found["host"]["nodes"] == 2


WHICH = "hint: it has an encoder for each, and their vectors are what it answers"
REFUSED = rows(
    """\
--prompt w7 => embed: must be question or context for dpr, got none\nWHICH
--prompt w7 --embed pooled => embed: must be question or context for dpr, got pooled\nWHICH
--prompt w7 --max_tokens 3 => --max_tokens: must be for a model that generates text, got dpr
--prompt [MASK] --top_k 3 => --top_k: must be for tokens that are filled in, got dpr
--prompt LONG --embed context => prompt: must have at most the 32 tokens of the model, got 33
    hint: --truncate_prompt takes its first ones
--embed context => --prompt: must be given for an encoder\nhint: or --prompt_file, with a prompt in each line
""".replace("WHICH", WHICH)
)


@pytest.mark.parametrize(("typed", "message"), REFUSED)
def test_what_it_refuses(cstool, folder, typed, message):
    words = ("run", "-p", folder / "cls.yaml", "--mode", "infer", "--tokenizer", folder / "vocab.txt")
    typed = ["w7 " * 31 if word == "LONG" else word for word in typed.split()]
    assert cstool(*words, *typed) == (2, "", error(message))


def test_from_python_it_neither_generates_nor_classifies(trained):
    _, path = trained
    with refusal(InferenceError, "prompt: must be for a model that generates text, got dpr", None):
        generate(path, "w7", progress="none")
    with refusal(InferenceError, "predict: must be for a model of images, got dpr", "`ask` is for texts"):
        predict(path, progress="none")
