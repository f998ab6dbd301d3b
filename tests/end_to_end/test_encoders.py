"""BERT from text to a model that answers, as a user trains it; what encoders fill in, and what they refuse."""

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from cstool import InferenceError, ask, load_params, prepare_mlm
from cstool.model.graphs import SampleForm, build_graph
from cstool.training.store import CheckpointReader
from tests.contract.refusal import refusal
from tests.end_to_end.pages import PROJECT
from tests.end_to_end.ranks import by_mpirun, run
from tests.end_to_end.refusals import error, rows
from tests.end_to_end.runs import check_parts, write_trainer
from tests.end_to_end.worked import save_random
from tests.reference import models as reference
from tests.unit.training.data.test_sentences import PAIRS, write_table

TOKENS = 32


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> Path:
    """A data set of pairs of texts, whose masks are drawn when it is read."""
    folder = tmp_path_factory.mktemp("pairs") / "made"
    prepare_mlm([PROJECT / "LICENSE"], folder, sequence_length=TOKENS, vocab_size=200, val_fraction=0.2, nsp=True)
    return folder


BERT = """
model: {name: bert, vocab_size: 200, max_position_embeddings: 32, hidden_size: 32, num_heads: 2, num_hidden_layers: 2,
        filter_size: 64, pooler_nonlinearity: tanh, mlm_loss_weight: 0.2}
optimizer: {AdamW: {betas: [0.9, 0.98], weight_decay: 0.01}}
schedulers: [{ConstantLR: {learning_rate: 2.0e-3}}]
loop: {max_steps: 30}
checkpoint: {steps: 10}
logging: {log_steps: 10}
"""


def bert_file(folder: Path, pairs: Path, name: str, **keys: Any) -> Path:
    """Write the params of a BERT; `keys` are of its model and of its data."""
    loader = {"data_processor": "BertCSVDynamicMaskDataProcessor", "vocab_file": str(pairs / "vocab.txt")}
    loader |= {"max_sequence_length": TOKENS, "max_predictions_per_seq": 6, "batch_size": 4, **keys}
    fit = {
        f"{part}_dataloader": {**loader, "data_dir": str(pairs / part), "shuffle": part == "train"}
        for part in ("train", "val")
    }
    init = {**yaml.safe_load(BERT), "model_dir": str(folder / name)}
    init["model"] |= keys
    return write_trainer(folder / f"{name}.yaml", init, fit)


def test_it_learns_and_both_its_heads_are_evaluated(cstool, tmp_path, pairs):
    file = bert_file(tmp_path, pairs, "straight")
    outcome = cstool("run", "-p", file, "--mode", "train_and_eval", "--json")
    assert outcome.code == 0
    assert (
        "Losses of training steps are as the file scales them: the sum over the masked tokens of a sample, times "
        "mlm_loss_weight (0.2). Those of evaluations are nats per masked token. The mean loss of pairs is added to "
        "both."
    ) in outcome.stderr
    losses, (found,) = outcome.document["losses"], outcome.document["evaluations"]
    assert sum(losses[-5:]) < 0.95 * sum(losses[:5])
    assert found["losses"].keys() == {"mlm_loss", "nsp_loss"}
    assert found["loss"] == pytest.approx(sum(found["losses"].values()))
    assert found["accuracy_masked_lm"] == found["accuracy"]
    assert 0 <= found["accuracy_cls"] <= 1


@pytest.mark.takes("three runs, whose data end within them")
def test_stopped_and_gone_on_with_on_two_systems_it_has_the_bits_of_a_straight_run(cstool, tmp_path, pairs):
    """Its data end after some ten steps, so that masks of several epochs are drawn."""
    check_parts(cstool, *(bert_file(tmp_path, pairs, name) for name in ("straight", "stopped")), 7, 14)


@pytest.mark.lab
def test_smoothed_labels_are_of_training_alone(cstool, tmp_path, pairs):
    """They make its loss another one; an evaluation of what was trained does not know of them."""
    smoothing = ("--set", "trainer.init.model.label_smoothing=0.3")
    command = ("run", "-p", bert_file(tmp_path, pairs, "bert"), "--json")
    # What is learnt of labels is hardly seen before the second step.
    fresh = ("--max_steps", 1, "--model_dir")
    plain = cstool(*command, *fresh, tmp_path / "plain").document["losses"][0]
    smoothed = cstool(*command, *fresh, tmp_path / "bert", *smoothing).document["losses"][0]
    assert plain != smoothed == pytest.approx(plain, rel=0.05)
    asked = (*command, "--mode", "eval")
    one, other = (cstool(*asked, *more).document["evaluations"][0]["loss"] for more in ((), smoothing))
    assert one == other


def classifier_file(tmp_path: Path, pairs: Path) -> Path:
    """Write the params of a classifier with the encoder of a BERT, and data for it."""
    glue = tmp_path / "SST-2"
    for name in ("train.tsv", "dev.tsv"):
        write_table(glue, name, ["sentence", "label"], [("the work", "1"), ("a license", "0")] * 4)
    init = {**yaml.safe_load(BERT), "model_dir": str(tmp_path / "second")}
    del init["model"]["mlm_loss_weight"]
    init["model"] |= {"name": "bert/classifier", "num_labels": 2, "task_dropout": 0.1}
    loader = {"data_processor": "SST2DataProcessor", "data_dir": str(glue), "vocab_file": str(pairs / "vocab.txt")}
    loader |= {"max_sequence_length": TOKENS, "is_training": True, "batch_size": 4}
    return write_trainer(tmp_path / "second.yaml", init, {"train_dataloader": loader})


MLM = "bert_mlm_head.mlm_transform"
LEFT = (
    f"{MLM}.ffn.ffn.0.linear_layer.weight, {MLM}.ffn.ffn.0.linear_layer.bias, {MLM}.ln.weight, {MLM}.ln.bias, "
    "bert_mlm_head.classifier.ffn.0.linear_layer.bias"
)
LEFT_OF_PAIRS = "bert_cls_head.classifier.ffn.0.linear_layer.weight, bert_cls_head.classifier.ffn.0.linear_layer.bias"
LACKED = (
    "bert.embedding_layer.segment_embeddings.weight, bert.pooler.pooler.ffn.0.linear_layer.weight, "
    "bert.pooler.pooler.ffn.0.linear_layer.bias, "
)


@pytest.mark.takes("three runs of two models")
@pytest.mark.parametrize(
    ("of", "lacks", "left"),
    [("pairs", "", f"{LEFT}, {LEFT_OF_PAIRS}"), pytest.param("single texts", LACKED, LEFT, marks=pytest.mark.lab)],
)
def test_another_task_begins_with_the_encoder_of_a_checkpoint(cstool, tmp_path, pairs, of, lacks, left):
    """Heads differ; what is in both is loaded where that is asked for, and else both are named.

    That of single texts has neither segments nor a pooling layer.
    """
    single = {"disable_nsp": True} if of == "single texts" else {}
    first, lacks = bert_file(tmp_path, pairs, "first", **single), f"{lacks}classifier.weight, classifier.bias"
    assert cstool("run", "-p", first, "--max_steps", 1).code == 0
    checkpoint = tmp_path / "first" / "checkpoint_1.mdl"
    second = classifier_file(tmp_path, pairs)

    typed = ("run", "-p", second, "--checkpoint_path", checkpoint, "--max_steps", 1)
    outcome = cstool(*typed)
    rule = f"error: TMP/first/checkpoint_1.mdl: must have the heads of this model, lacks {lacks}"
    hint = (
        "its encoder fits: --disable_strict_checkpoint_loading --load_checkpoint_states model loads what is in both, "
        "and the rest begins at random"
    )
    *_, said, told = outcome.stderr.splitlines()
    begin, _, has = said.partition(" and has ")
    assert (outcome.code, begin, told) == (2, rule, f"hint: {hint}")
    assert set(has.split(", ")) >= set(left.split(", "))

    loose = ("--disable_strict_checkpoint_loading", "--load_checkpoint_states", "model")
    outcome = cstool(*typed, *loose, "--set", "trainer.init.schedulers=[{ConstantLR: {learning_rate: 0.0}}]")
    assert outcome.code == 0, outcome.stderr
    assert f"checkpoint_1.mdl lacks {lacks}: they begin at random." in outcome.stdout
    assert "as the file scales them" not in outcome.stdout  # the loss is a mean over samples
    with CheckpointReader(checkpoint) as before, CheckpointReader(tmp_path / "second" / "checkpoint_1.mdl") as after:
        there = {name.replace("model.bert_encoder.", "model.bert."): name for name in before.tensor_names()}
        same = [name for name in after.tensor_names() if name.startswith("model.bert.") and name in there]
        for name in same:
            np.testing.assert_array_equal(after.read(name), before.read(there[name]))
    assert len(same) == 3 + 2 + 2 * 16 + 2 - lacks.count("bert.")


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"the cat dog ##s sat on a mat . ,".split()]
MODEL = {"vocab_size": 18, "max_position_embeddings": 24, "hidden_size": 16, "num_heads": 2}
MODEL |= {"num_hidden_layers": 2, "filter_size": 32, "dropout_rate": 0.0}
HEADS: dict[str, dict[str, Any]] = {
    "bert": {"pooler_nonlinearity": "tanh"},
    "esm2": {"token_dropout": True, "mask_token_id": 4, "disable_nsp": True, "position_embedding_type": "rotary"},
    "bert/classifier": {"num_labels": 3, "task_dropout": 0.0},
    "bert/token_classifier": {"num_classes": 3, "encoder_output_dropout_rate": 0.0},
    "bert/extractive_summarization": {},
}
TEXTS = ["the cat sat on a [MASK] .", "[MASK] dogs , the [MASK] sat", "a [MASK]"]
TEXTS += ["the cats sat on the mat [MASK] a dog ."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with a vocabulary, labels, a table of pairs, and params and a checkpoint of each kind of encoder."""
    folder = tmp_path_factory.mktemp("encoders")
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (folder / "labels.json").write_text(json.dumps({"O": 0, "ANIMAL": 1, "THING": 2}))
    write_table(folder / "MNLI", "train.tsv", ["index", "sentence1", "sentence2", "gold_label"], [(0, *PAIRS[0])])
    for name, keys in HEADS.items():
        section = {"name": name, **MODEL, **keys}
        if name == "bert/extractive_summarization":
            section["vocab_file"] = str(folder / "vocab.txt")
        if name == "bert/token_classifier":
            section["label_vocab_file"] = str(folder / "labels.json")
        loader = {"data_processor": "MNLIDataProcessor", "data_dir": str(folder / "MNLI"), "batch_size": 2}
        loader |= {"vocab_file": str(folder / "vocab.txt"), "max_sequence_length": 16, "is_training": True}
        init = {"model": section, "model_dir": str(folder / "dir"), "seed": 4}
        fit = {"train_dataloader": loader} if name == "bert/classifier" else None
        save_random(write_trainer(folder / f"{name.rpartition('/')[2]}.yaml", init, fit), SampleForm(4, 2))
    return folder


def asked(cstool, folder: Path, model: str, *typed: object) -> Any:
    words = ("run", "-p", folder / f"{model}.yaml", "--checkpoint_path", folder / f"{model}.mdl", "--mode", "infer")
    return cstool(*words, *typed)


def vocabulary(folder: Path, model: str) -> tuple[str, ...]:
    """Name the vocabulary where the params do not."""
    return () if model in ("classifier", "extractive_summarization") else ("--tokenizer", str(folder / "vocab.txt"))


def prompts(texts: list[str]) -> list[str]:
    return [word for text in texts for word in ("--prompt", text)]


def test_masks_are_filled_in_with_the_probabilities_of_the_slow_twin(cstool, folder):
    typed = (*vocabulary(folder, "bert"), "--prompt", TEXTS[0], "--pair", "the mat", "--top_k", 18, "--json")
    outcome = asked(cstool, folder, "bert", *typed)
    (answer,) = outcome.document["answers"]
    tokens = [WORDS.index(word) for word in "[CLS] the cat sat on a [MASK] . [SEP] the mat [SEP]".split()]
    graph = build_graph(load_params(folder / "bert.yaml").model, SampleForm(len(tokens), 1))
    with CheckpointReader(folder / "bert.mdl") as reader:
        weights = {name: reader.read(f"model.{name}").astype(np.float64) for name in graph.weights}
    batch = {
        "input_ids": np.array([tokens]),
        "token_type_ids": np.array([[0] * 9 + [1] * 3]),
        "attention_mask": np.ones((1, len(tokens)), int),
        "masked_lm_positions": np.array([[6]]),
        "mask": np.ones((1, 1)),
        "sample_mask": np.ones((1, 1)),
    }

    def share(label: int, scales: tuple[float, float]) -> float:
        found = batch | {"labels": np.array([[label]]), "next_sentence_label": np.array([[0]])}
        return float(np.exp(-reference.loss(graph, weights, found, 3, None, scales)))

    assert len(answer["masks"][0]) == len(WORDS)
    for choice in answer["masks"][0]:
        assert choice["token"] == WORDS[choice["id"]]
        assert choice["probability"] == pytest.approx(share(choice["id"], (1.0, 0.0)), rel=1e-4)
    assert answer["follows"] == pytest.approx(share(0, (0.0, 1.0)), rel=1e-4)
    shares = [choice["probability"] for choice in answer["masks"][0]]
    assert shares == sorted(shares, reverse=True)


@pytest.mark.takes("ten commands, each of which loads a model")
@pytest.mark.parametrize(
    "model",
    [
        "bert",
        "token_classifier",
        *(pytest.param(name, marks=pytest.mark.lab) for name in ("esm2", "classifier", "extractive_summarization")),
    ],
)
def test_an_answer_does_not_depend_on_what_is_beside_it_or_where_weights_are(cstool, folder, model, tmp_path):
    given = vocabulary(folder, model)
    together = asked(cstool, folder, model, *prompts(TEXTS), *given, "--json")
    answers = together.document["answers"]
    alone = [asked(cstool, folder, model, "--prompt", text, *given, "--json").document["answers"][0] for text in TEXTS]
    assert answers == alone
    for other in (
        ("--batch_size", 2),
        ("--lanes", 1),
        ("--num_csx", 2),
        ("--memoryx", "file", "--memoryx_memory", "16MiB", "--model_dir", tmp_path / "other"),
    ):
        found = asked(cstool, folder, model, *prompts(TEXTS), *given, *other, "--json")
        assert found.document["answers"] == answers, other
    assert found.document["host"]["weights"] == "streamed"
    narrow = asked(cstool, folder, model, *prompts(TEXTS), *given, "--precision", "bfloat16", "--json").document
    assert narrow["host"]["precision"] == "bfloat16"
    assert narrow["host"]["streamed_bytes"] < together.document["host"]["streamed_bytes"]


@pytest.mark.takes("two ranks, which are processes")
@pytest.mark.parametrize("store", ["ram", pytest.param("file", marks=pytest.mark.lab)])
def test_two_ranks_answer_as_one_process(cstool, folder, store, tmp_path):
    """Both heads of a BERT, by turns, in several passes."""
    given = ["--checkpoint_path", str(folder / "bert.mdl"), "--mode", "infer", "--json", "--batch_size", "1"]
    given += [*prompts(TEXTS), *(word for text in TEXTS for word in ("--pair", text))]
    given += ["--truncate_prompt", *vocabulary(folder, "bert"), "--model_dir", str(tmp_path)]
    one = cstool("run", "-p", folder / "bert.yaml", *given).document
    found = run(*by_mpirun(folder / "bert.yaml", *given, "--memoryx", store))
    document = json.loads(found.output)
    assert document["answers"] == one["answers"]
    assert document["answers"][0]["follows"] is not None
    assert (document["host"]["weights"], document["host"]["nodes"]) == ("streamed", 2)


@pytest.mark.parametrize("how", ["mean", "first", "pooled"])
def test_vectors_go_to_files(cstool, folder, how, tmp_path):
    given = (*prompts(["the cat", "a dog sat on"]), *vocabulary(folder, "bert"), "--embed", how)
    document = asked(cstool, folder, "bert", *given, "--json").document
    vectors = [answer["embedding"] for answer in document["answers"]]
    for name in ("v.npy", "v.jsonl"):
        outcome = asked(cstool, folder, "bert", *given, "--output", tmp_path / name)
        assert (outcome.code, outcome.stdout) == (0, "")
    found = np.load(tmp_path / "v.npy")
    assert (found.shape, found.dtype) == ((2, 16), np.float32)
    np.testing.assert_array_equal(found, np.array(vectors, np.float32))
    lines = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    assert lines == document["answers"]
    assert not np.array_equal(found[0], found[1])


def test_the_mean_is_that_of_all_tokens(folder):
    """The vector of the first token of a text of one token is its mean."""
    texts, given = ["cat"], {"tokenizer": folder / "vocab.txt", "special_tokens": False, "progress": "none"}
    with_model = (folder / "bert.mdl", texts)
    mean, first = (ask(*with_model, embed=how, **given).embeddings for how in ("mean", "first"))
    np.testing.assert_array_equal(mean, first)
    longer = [ask(folder / "bert.mdl", "cat dog", embed=how, **given).embeddings for how in ("mean", "first")]
    assert not np.array_equal(*longer)


def test_classes_have_the_names_that_data_give_them(cstool, folder):
    outcome = asked(cstool, folder, "classifier", "--prompt", "the cat sat", "--pair", "a dog", "--json")
    (answer,) = outcome.document["answers"]
    assert list(answer["probabilities"]) == ["entailment", "neutral", "contradiction"]
    assert sum(answer["probabilities"].values()) == pytest.approx(1)
    assert answer["label"] == max(answer["probabilities"], key=answer["probabilities"].__getitem__)
    outcome = asked(cstool, folder, "token_classifier", "--prompt", "the cats, sat", *vocabulary(folder, "bert"))
    lines = [line.split() for line in outcome.stdout.splitlines()]
    assert [line[0] for line in lines] == ["the", "cats,", "sat"]
    assert {line[1] for line in lines} <= {"O", "ANIMAL", "THING"}


def test_sentences_of_a_summary(cstool, folder):
    text = "the cat sat on a mat. a dog sat. the dogs sat on the cats. a mat"
    outcome = asked(cstool, folder, "extractive_summarization", "--prompt", text, "--truncate_prompt", "--json")
    (answer,) = outcome.document["answers"]
    sentences = answer["sentences"]
    assert [found["sentence"] for found in sentences] == ["the cat sat on a mat.", "a dog sat."]
    assert [found["is_chosen"] for found in sentences] == [found["probability"] > 0.5 for found in sentences]
    assert answer["summary"] == " ".join(found["sentence"] for found in sentences if found["is_chosen"])


def test_text_is_shown_with_the_likeliest_tokens(cstool, folder):
    outcome = asked(cstool, folder, "esm2", "--prompt", "a [MASK] .", *vocabulary(folder, "esm2"), "--top_k", 2)
    first, second = outcome.stdout.splitlines()
    token = second.removeprefix("  mask 1: ").split()[0]
    assert first == (f"a{token[2:]} ." if token.startswith("##") else f"a {token} .")


REFUSED = rows("""\
bert => --prompt: must be given for an encoder\nhint: or --prompt_file, with a prompt in each line
bert --prompt 'a [MASK]' --max_tokens 3 => --max_tokens: must be for a model that generates text, got bert
bert --prompt 'a cat' --tokenizer VOCAB => prompt: must have [MASK] where a token is to be filled in, got 'a cat'
    hint: --embed mean gives the vector of a text
bert --prompt 'a [MASK]' => --tokenizer: must be given where the params have no vocab_file, and they have none
    hint: the vocab.txt or the tokenizer.json of the training data
bert --prompt a --embed question --tokenizer VOCAB => embed: must be mean, first or pooled for bert, got question
bert --prompt 'a [MASK]' --tokenizer bytes =>
    --tokenizer: must be the vocab.txt of an encoder or a tokenizers JSON file, got bytes
    hint: no byte is a mask, or begins a text
classifier --prompt LONG => prompt: must have at most the 24 tokens of the model, got 25
    hint: --truncate_prompt takes its first ones
token_classifier --prompt 'a cat' --pair 'a dog' --tokenizer VOCAB =>
    prompt: must be one text for bert/token_classifier, got a pair
classifier --prompt a --prompt the --pair 'a dog' => --pair: must be given as often as --prompt (2), got 1
token_classifier --prompt a --embed pooled --tokenizer VOCAB =>
    embed: must be mean or first for bert/token_classifier, which has no pooling layer, got pooled
classifier --prompt a --top_k 3 => --top_k: must be for tokens that are filled in, got bert/classifier
classifier --prompt ' ' => prompt: must have at least one token of text, got ' ', which has none
classifier --prompt a --output x.csv => --output x.csv: must end in .jsonl, got .csv
""")


@pytest.mark.parametrize(("typed", "message"), REFUSED)
def test_what_it_refuses(cstool, folder, typed, message):
    words = {"VOCAB": str(folder / "vocab.txt"), "LONG": "a " * 23}
    model, *typed = (words.get(word, word) for word in shlex.split(typed))
    assert asked(cstool, folder, model, *typed) == (2, "", error(message))


def test_a_decoder_is_asked_for_text_alone(refused):
    for flag, value in (("--pair", "a"), ("--embed", "mean")):
        refused(f"{flag}: must be for an encoder, got gpt2", None, "--mode", "infer", "--prompt", "a", flag, value)


def test_another_vocabulary_is_refused(folder, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*WORDS, *"bcdefghi"]) + "\n")
    rule = f"{tmp_path / 'vocab.txt'}: must have at most the model's vocab_size (18) tokens, got {len(WORDS) + 8}"
    with refusal(InferenceError, rule, "--tokenizer names that of the training data"):
        ask(folder / "bert.mdl", "a [MASK]", tokenizer=tmp_path / "vocab.txt", progress="none")
