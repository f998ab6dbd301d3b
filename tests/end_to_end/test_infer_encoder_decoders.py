"""`cstool run --mode infer` of encoder-decoders: spans that are filled in, and words that are translated."""

import json
import re
from pathlib import Path

import pytest
import yaml

import cstool as library
from cstool.training.data import FileTokenizer, PairTokenizer
from tests.end_to_end.refusals import error, rows
from tests.end_to_end.test_encoder_decoders import EXTRA, LENGTH, TARGETS, WORDS, spans, t5_file

__all__ = ["spans"]
PROMPTS = ("the License <extra_id_0> any later", "You may <extra_id_0> of the <extra_id_1> works", "x")
WAYS = (), ("--batch_size", 1), ("--no_kv_cache",), ("--memoryx", "file"), ("--num_csx", 2, "--lanes", 1)
ASKED = [word for text in PROMPTS for word in ("--prompt", text)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory, spans) -> Path:
    """Params of a small T5 that was trained for a few steps; its sources and targets have positions of their own."""
    folder = tmp_path_factory.mktemp("t5")
    file = t5_file(folder, spans, "asked", position_embedding_type="learned_absolute")
    library.train(file, progress="none")
    return file


def test_what_the_decoder_tells_of_each_source_comes_with_its_sentinels(cstool, trained):
    outcome = cstool("run", "-p", trained, "--mode", "infer", *ASKED[:2], "--max_tokens", 6)
    assert outcome.code == 0, outcome.stderr
    found = json.loads(cstool("run", "-p", trained, "--mode", "infer", *ASKED[:2], "--max_tokens", 6, "--json").stdout)
    (completion,) = found["completions"]
    tokens, first = completion["tokens"], WORDS + EXTRA - 1
    assert len(tokens) <= 6
    sentinels = [f"<extra_id_{first - token}>" for token in tokens if token > first - EXTRA]
    assert [word for word in completion["text"].split() if word.startswith("<extra_id_")] == sentinels
    # The prompt is not shown: what follows does not go on from it.
    assert outcome.stdout == completion["text"] + "\n"
    assert found["host"]["prompt_tokens"] == completion["prompt_tokens"]


@pytest.mark.parametrize("search", [(), ("--num_beams", 3), ("--temperature", 0.9, "--seed", 4)])
def test_nothing_but_the_request_changes_the_text(cstool, trained, search):
    asked = (*ASKED, *search, "--json")
    said = [
        json.loads(cstool("run", "-p", trained, "--mode", "infer", *asked, *other).stdout)["completions"]
        for other in WAYS
    ]
    assert all(each == said[0] for each in said)
    assert [each["prompt"] for each in said[0]] == list(PROMPTS)


def test_several_sources_come_one_after_the_other_and_python_has_the_same(cstool, trained):
    outcome = cstool("run", "-p", trained, "--mode", "infer", *ASKED, "--num_beams", 2)
    answers = library.generate(trained, PROMPTS, num_beams=2, progress="none")
    assert answers.texts == [each.text for each in answers.completions]
    heads = re.findall(r"^--- .*?: ", outcome.stdout, re.MULTILINE)
    assert heads == [f"--- prompt {k} of 3: " for k in (1, 2, 3)]
    for text in answers.texts:
        assert f"{text}\n" in outcome.stdout


def test_words_without_a_tokenizer_are_those_of_the_vocabulary(cstool, tmp_path):
    words = ["<pad>", "<unk>", "<s>", "</s>", "one", "two", "three", "eins", "zwei", "drei"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    pairs = [("one two", "eins zwei"), ("two three", "zwei drei"), ("three one", "drei eins"), ("two", "zwei")]
    for language in (0, 1):
        text = "".join(f"{pair[language]}\n" for pair in pairs * 8)
        (tmp_path / f"text.{language}").write_text(text)
    (tmp_path / "meta.dat").write_text("text.0 text.1 32\n")
    loader = {"data_processor": "TransformerDynamicDataProcessor", "src_data_dir": str(tmp_path), "batch_size": 8}
    loader |= {"src_vocab_file": str(tmp_path / "vocab.txt")}
    loader |= {"src_max_sequence_length": 8, "tgt_max_sequence_length": 8}
    model = {"name": "transformer", "src_vocab_size": len(words), "d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 64}
    model |= {"encoder_num_hidden_layers": 1, "dropout_rate": 0.0, "mlm_loss_scaling": "num_masked"}
    model |= {"src_max_position_embeddings": 8, "tgt_max_position_embeddings": 8, "position_embedding_type": "fixed"}
    init = {"model": model, "optimizer": {"AdamW": {}}, "schedulers": [{"ConstantLR": {"learning_rate": 3.0e-3}}]}
    init |= {"loop": {"max_steps": 120}, "checkpoint": {"steps": 120}, "model_dir": str(tmp_path / "translates")}
    file = tmp_path / "translates.yaml"
    file.write_text(yaml.safe_dump({"trainer": {"init": init, "fit": {"train_dataloader": loader}}}))
    assert cstool("run", "-p", file).code == 0
    asked = [word for source, _ in pairs for word in ("--prompt", source)]
    for search in ((), ("--num_beams", 3)):
        outcome = cstool("run", "-p", file, "--mode", "infer", *asked, *search)
        said = [line for line in outcome.stdout.splitlines() if not line.startswith("--- ")]
        assert said == [target for _, target in pairs]
        assert "--- prompt 4 of 4: 2 tokens, ended by end_of_text\n" in outcome.stdout


REFUSED = rows("""\
<extra_id_8> => the text must have sentinels below <extra_id_8>, got <extra_id_8>
    hint: extra_ids of the model says how many there are
LONG => prompt: must have at most the 32 tokens that the encoder takes, got 200
    hint: --truncate_prompt takes its first ones
NONE => prompt: must have at least one token, got ' ', which has none
""")


@pytest.mark.parametrize(("prompt", "message"), REFUSED)
def test_what_cannot_be_asked_for_is_refused(cstool, trained, prompt, message):
    prompt = {"LONG": "License " * 40, "NONE": " "}.get(prompt, prompt)
    assert cstool("run", "-p", trained, "--mode", "infer", "--prompt", prompt) == (2, "", error(message))


def test_bytes_end_with_a_token_that_the_model_knows(cstool, trained):
    assert cstool("run", "-p", trained, "--mode", "infer", "--prompt", "a", "--tokenizer", "bytes").code == 0


def test_a_source_that_is_too_long_can_be_cut(cstool, trained):
    asked = "--prompt", "License " * 40, "--truncate_prompt", "--json"
    (completion,) = json.loads(cstool("run", "-p", trained, "--mode", "infer", *asked).stdout)["completions"]
    assert completion["prompt_tokens"] == LENGTH
    assert completion["finish_reason"] in ("context", "end_of_text")
    assert len(completion["tokens"]) < TARGETS


def test_sentinels_go_to_tokens_and_back(spans):
    tokenizer = PairTokenizer(FileTokenizer(spans / "tokenizer.json"), sentinels=3, vocab_size=303, start=0)
    tokens = tokenizer.encode("may <extra_id_0> the<extra_id_2>")
    assert [token for token in tokens if token >= 300] == [302, 300]
    assert tokenizer.decode(tokens) == "may <extra_id_0> the <extra_id_2>"
    assert tokenizer.decode([302, 301]) == "<extra_id_0> <extra_id_1>"
