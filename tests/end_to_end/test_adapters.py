"""Adapters from a run to an answer: beside a base, alone in checkpoints, resumed, merged, and refused elsewhere."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from cstool.training.store import CheckpointReader, CommittedStore
from cstool.training.store.crc32 import crc32
from tests.end_to_end.memoryx_files import small_params
from tests.end_to_end.refusals import error
from tests.reference.hf_models import read_safetensors
from tests.thread_ranks import run_ranks

SMALL = {"init__checkpoint": {"steps": 2}, "init__model__num_hidden_layers": 2}
LORA = ("--lora", "rank=2,alpha=8,dropout=0.1,targets=q,down", "--lanes", 1)


@pytest.fixture
def base(tmp_path, data, cstool, monkeypatch) -> Path:
    """Params of a base, which was trained for two steps."""
    monkeypatch.chdir(tmp_path)
    file = small_params(tmp_path, data, init__loop={"max_steps": 2}, **SMALL)
    assert cstool("run", "-p", file, "--lanes", 1).code == 0
    (tmp_path / "model_dir" / "checkpoint_2.mdl").rename(tmp_path / "base.mdl")
    return file


def tensors_of(path: Path) -> dict[str, np.ndarray]:
    with CheckpointReader(path) as reader:
        return {name: reader.read(name) for name in reader.tensor_names()}


@pytest.mark.takes("six runs, and answers")
def test_from_a_base_to_an_answer(base, tmp_path, cstool):
    """With a tied output layer, which has a weight of its own once adapters are folded in."""
    lora = (LORA[0], f"{LORA[1]},embedding,head", *LORA[2:])
    before, started = (tmp_path / "base.mdl").read_bytes(), ("run", "-p", base, *lora)
    found = cstool(*started, "--checkpoint_path", "base.mdl", "--max_steps", 4, "--model_dir", "straight")
    assert found.code == 0
    assert "base.mdl has no adapters: they begin beside its weights.\n" in found.stdout
    assert "gpt2, 24,320 parameters, 1,024 of them trained; " in found.stdout
    # Interrupted, on two systems, and in a file it comes to the same bits.
    assert cstool(*started, "--checkpoint_path", "base.mdl", "--max_steps", 2, "--model_dir", "parted").code == 0
    assert cstool(*started, "--max_steps", 4, "--model_dir", "parted", "--num_csx", 2).code == 0
    in_file = ("--memoryx", "file", "--model_dir", "file")
    assert cstool(*started, "--checkpoint_path", "base.mdl", "--max_steps", 3, *in_file).code == 0
    assert cstool(*started, "--max_steps", 4, *in_file).code == 0
    # The file has no copy of the base.
    with CommittedStore(Path("file/memoryx.h5")) as committed:
        assert all(".lora_" in name for name in committed.tensor_names())
    straight = tensors_of(Path("straight/checkpoint_4.mdl"))
    for other in ("parted", "file"):
        tensors = tensors_of(Path(other, "checkpoint_4.mdl"))
        assert tensors.keys() == straight.keys()
        assert all(np.array_equal(tensors[name], array) for name, array in straight.items())
    # Of the base nothing is in it, and nothing of the base has changed.
    assert all(".lora_" in name for name in straight)
    assert (tmp_path / "base.mdl").read_bytes() == before
    merged = cstool("checkpoint", "merge", "straight:latest", "merged.mdl").stdout
    assert merged.startswith("straight/checkpoint_4.mdl: 6 adapters folded into merged.mdl, ")
    asked = ("run", "--mode", "infer", "--prompt", "123", "--tokenizer", "bytes", "--max_tokens", 8, "--json")
    answers = [
        cstool(*asked, "--checkpoint_path", name).document["completions"][0]
        for name in ("straight:latest", "merged.mdl")
    ]
    assert answers[0] == answers[1]
    assert cstool("checkpoint", "merge", "file/memoryx.h5", "of_file.mdl").code == 0
    merged, of_file = (tensors_of(Path(name)) for name in ("merged.mdl", "of_file.mdl"))
    assert all(np.array_equal(of_file[name], array) for name, array in merged.items())
    assert cstool("checkpoint", "convert", "merged.mdl", "hf", "--to", "hf").code == 0
    assert json.loads(Path("hf/config.json").read_text())["tie_word_embeddings"] is False
    there = read_safetensors(Path("hf/model.safetensors"))
    assert np.array_equal(there["lm_head.weight"], merged["model.lm_head.weight"])


def test_tables_with_adapters_are_not_folded_into_a_tied_model(base, cstool):
    lora = ("--lora", "rank=2,targets=embedding", "--lanes", 1, "--model_dir", "tuned", "--max_steps", 1)
    assert cstool("run", "-p", base, *lora, "--checkpoint_path", "base.mdl").code == 0
    refused = cstool("run", "-p", base, "--mode", "eval", "--checkpoint_path", "tuned:latest")
    assert (refused.code, refused.stderr) == (
        2,
        "error: tuned/checkpoint_1.mdl: must have adapters that leave the output layer tied, as it is in this model\n"
        "hint: --lora evaluates them as they were trained, cstool checkpoint merge makes an untied model of them\n",
    )


@pytest.mark.takes("four runs")
@pytest.mark.parametrize("store", ["ram", "file"])
def test_on_two_ranks_with_the_bits_of_one(base, cstool, store):
    """Each has a part of base and adapters; a rank goes on alone."""
    asked = {"trainer__init__lora": "rank=2,alpha=8,targets=q,down", "trainer__init__memoryx__store": store}
    asked |= {"trainer__fit__ckpt_path": str(Path("base.mdl").absolute()), "trainer__init__loop__max_steps": 4}
    names = {ranks: Path(f"on_{ranks}").absolute() for ranks in (1, 2)}
    for ranks, folder in names.items():
        run_ranks(
            base,
            ranks,
            **asked,
            trainer__init__model_dir=str(folder),
            trainer__init__backend__cluster_config__num_csx=2,
        )
    expected = tensors_of(names[1] / "checkpoint_4.mdl")
    found = tensors_of(names[2] / "checkpoint_4.mdl")
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], array) for name, array in expected.items())
    goes_on = {**asked, "trainer__fit__ckpt_path": None, "trainer__init__loop__max_steps": 6}
    last = []
    for ranks, folder in ((1, names[2]), (2, names[1])):
        run_ranks(
            base,
            ranks,
            **goes_on,
            trainer__init__model_dir=str(folder),
            trainer__init__backend__cluster_config__num_csx=2,
        )
        last.append(tensors_of(folder / "checkpoint_6.mdl"))
    assert all(np.array_equal(last[0][name], array) for name, array in last[1].items())


IN_FILE = ("--memoryx", "file")


def losses_of(outcome) -> list[float]:
    return [each["loss"] for each in outcome.document["evaluations"]]


@pytest.mark.takes("eight runs")
def test_a_file_evaluates_weights_where_they_lie(base, tmp_path, cstool):
    """Of a base, and of the base of adapters; one machine for each of several checkpoints."""
    assert cstool("run", "-p", base, *LORA, "--checkpoint_path", "base.mdl", "--model_dir", "tuned").code == 0
    for flags in ((), LORA):
        checkpoint = ("--checkpoint_path", "tuned:latest" if flags else "base.mdl")
        asked = ("run", "-p", base, *flags, "--mode", "eval", *checkpoint, "--model_dir", "eval", "--json")
        filed = cstool(*asked, *IN_FILE)
        assert losses_of(filed) == losses_of(cstool(*asked))
        assert re.search(r": [\d.]+ k?B of state in one slot, 93.2 kB of weights stay in \S*base\.mdl,", filed.stderr)
    assert cstool("run", "-p", base, "--checkpoint_path", "base.mdl", "--max_steps", 4, "--model_dir", "eval").code == 0
    shutil.copy("base.mdl", "eval/checkpoint_2.mdl")
    asked = ("run", "-p", base, "--mode", "eval_all", "--model_dir", "eval", "--json")
    losses = losses_of(cstool(*asked, *IN_FILE))
    assert losses == losses_of(cstool(*asked))
    assert len({*losses}) == 2


def test_a_file_without_its_base(base, tmp_path, cstool):
    asked = ("run", "-p", base, *LORA, *IN_FILE, "--model_dir", "tuned")
    assert cstool(*asked, "--checkpoint_path", "base.mdl", "--set", "trainer.init.checkpoint.steps=0").code == 0
    good = (tmp_path / "base.mdl").read_bytes()
    with CheckpointReader("base.mdl") as reader:
        name = "model.transformer_decoder.layers.0.ffn.ffn.0.linear_layer.weight"
        place = reader.place(name)
    damaged = bytearray(good)
    damaged[place.offset] ^= 1
    (tmp_path / "base.mdl").write_bytes(damaged)
    checksum = crc32(damaged[place.offset : place.offset + place.nbytes])
    refused = cstool(*asked, "--max_steps", 4)
    assert (refused.code, refused.stderr) == (
        2,
        f"error: TMP/base.mdl: {name} is damaged: its checksum must be {place.crc32:08x}, got {checksum:08x}\n"
        "hint: MemoryX has no copy of it: bring a whole one back\n",
    )
    (tmp_path / "base.mdl").unlink()
    refused = cstool(*asked, "--max_steps", 4)
    assert (refused.code, refused.stderr) == (
        2,
        "error: TMP/tuned/memoryx.h5: has adapters beside the weights of TMP/base.mdl, which is not there\n"
        "hint: TMP/tuned/base.mdl is looked for, too\n",
    )
    (tmp_path / "base.mdl").write_bytes(good)
    assert cstool(*asked, "--max_steps", 4).code == 0


def test_adapters_are_no_model(base, tmp_path, cstool):
    assert cstool("run", "-p", base, *LORA, "--checkpoint_path", "base.mdl", "--model_dir", "tuned").code == 0
    first = "transformer_decoder.layers.0.self_attn.proj_q_dense_layer.lora_A"
    refused = cstool("run", "-p", base, "--checkpoint_path", "tuned:latest", "--load_checkpoint_states", "model")
    assert (refused.code, refused.stderr) == (
        2,
        f"error: tuned/checkpoint_2.mdl: has adapters, such as {first}, and this model has none\n"
        "hint: --lora trains them on; cstool checkpoint merge folds them into the weights\n",
    )
    (tmp_path / "base.mdl").unlink()
    refused = cstool("checkpoint", "merge", "tuned:latest", "merged.mdl")
    assert (refused.code, refused.stderr) == (
        2,
        "error: tuned/checkpoint_2.mdl: has adapters beside the weights of TMP/base.mdl, which is not there\n"
        "hint: tuned/base.mdl is looked for, too\n",
    )
    assert not Path("merged.mdl").exists()


ASK = ("run", "--mode", "infer", "--tokenizer", "bytes", "--max_tokens", 6, "--json", "--batch_size", 4)
PROMPTS = ("--prompt", "12", "--prompt", "3")


@pytest.mark.takes("two runs, and a dozen answers")
def test_several_adapters_answer_over_one_base(base, cstool):
    for name, lora in (("one", LORA), ("two", ("--lora", "rank=3,targets=all", "--lanes", 1))):
        asked = ("run", "-p", base, *lora, "--checkpoint_path", "base.mdl", "--model_dir", name)
        assert cstool(*asked, "--set", "trainer.init.optimizer.AdamW.learning_rate=0.1").code == 0
    both = cstool(*ASK, *PROMPTS, "--adapter", "one:latest", "--adapter", "two:latest", "--output", "both.jsonl")
    found = both.document["completions"]
    files = ["one/checkpoint_2.mdl", "two/checkpoint_2.mdl"]
    assert [(each["prompt"], each["adapter"]) for each in found] == [(p, f) for p in ("12", "3") for f in files]
    assert [json.loads(line) for line in Path("both.jsonl").read_text().splitlines()] == found
    # The same as with one alone, from a file, and the same draws as with the adapters folded in.
    for number, file in enumerate(files):
        for more in (
            (),
            ("--memoryx", "file"),
            ("--checkpoint_path", "base.mdl"),
            ("-p", base, "--checkpoint_path", "base.mdl"),
        ):
            alone = cstool(*ASK, *more, *PROMPTS, "--adapter", file).document["completions"]
            assert alone == found[number::2]
        for more in ((), ("--memoryx", "file")):
            folded = cstool(*ASK, *more, *PROMPTS, "--checkpoint_path", file)
            tokens = [each["tokens"] for each in folded.document["completions"]]
            assert tokens == [each["tokens"] for each in found[number::2]]
            # A file has no copy of the base for that.
            assert ("93.2 kB of weights stay in TMP/base.mdl, " in folded.stderr) == bool(more)
    assert found[0]["tokens"] != found[1]["tokens"]
    shown = cstool(
        *(each for each in ASK if each != "--json"), "--prompt", "12", "--adapter", files[0], "--adapter", files[1]
    )
    assert re.findall("--- .*", shown.stdout) == [
        f"--- prompt 1 of 1, {file}: 6 tokens, ended by length" for file in files
    ]


@pytest.mark.takes("two runs, and answers")
def test_adapters_of_another_base_and_files_without_adapters_are_refused(base, cstool):
    assert cstool("run", "-p", base, *LORA, "--checkpoint_path", "base.mdl", "--model_dir", "one").code == 0
    assert cstool("checkpoint", "merge", "one:latest", "merged.mdl").code == 0
    file = "one/checkpoint_2.mdl"
    first = "model.transformer_decoder.layers.0.self_attn.proj_q_dense_layer.weight"
    cases = {
        ("--checkpoint_path", "merged.mdl", "--adapter", file): (
            f"{file}: must be adapters of merged.mdl, got adapters of TMP/base.mdl",
            f"{first} is the first weight that differs",
        ),
        ("--checkpoint_path", "base.mdl", "--adapter", "merged.mdl"): (
            "merged.mdl: must have adapters, as --adapter takes them, it has none",
            None,
        ),
        ("--checkpoint_path", file, "--adapter", file): (
            f"{file}: must be a base for --adapter, got adapters",
            "--adapter takes these, too",
        ),
        ("--adapter", "merged.mdl"): (
            "merged.mdl: must be adapters beside a base, as --adapter takes them, it is not",
            "--checkpoint_path answers with what is in it",
        ),
    }
    for typed, (message, hint) in cases.items():
        refused = cstool(*ASK, "--prompt", "1", *typed)
        assert refused.code == 2
        # Behind the first lines of the log.
        assert re.sub("(?m)^20.*\n", "", refused.stderr) == error(message, hint)
    asked = ("run", "-p", base, "--lora", "rank=2,targets=head", "--lanes", 1, "--checkpoint_path", "base.mdl")
    assert cstool(*asked, "--model_dir", "two").code == 0
    refused = cstool(*ASK, "--prompt", "1", "--adapter", "two:latest")
    rule = "--adapter takes low-rank adapters of linear layers inside the model"
    message = f"two/checkpoint_2.mdl: {rule}, got one of lm_head"
    hint = "cstool checkpoint merge folds it into the weights"
    asked = (*ASK, "--prompt", "1", "--checkpoint_path", "two:latest")
    texts = [cstool(*asked, *more).document["completions"] for more in ((), ("--memoryx", "file"))]
    assert texts[0] == texts[1]
    assert re.sub("(?m)^20.*\n", "", refused.stderr) == error(message, hint)
    refused = cstool("run", "-p", base, "--mode", "eval", "--adapter", file)
    assert (refused.code, refused.stderr) == (2, error("--adapter: must go with --mode infer, got --mode eval"))
