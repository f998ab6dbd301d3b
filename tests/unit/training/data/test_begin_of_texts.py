"""What the template of a tokenizer puts before a text: data sets say whether theirs begin so, and what follows does."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer as Loaded
from tokenizers import models, pre_tokenizers, processors

from cstool.convert.hf_tokenizer import describe_tokenizer
from cstool.inference.prompts import encode_prompts
from cstool.inference.request import Request
from cstool.inference.verbs.answer import tokenizer_of_texts
from cstool.training.data import (
    PreferencePlan,
    TextRequest,
    data_info,
    load_tokenizer,
    prepare_preferences,
    prepare_text,
    tokenizer_of,
)
from tests.models import decoder_params
from tests.unit.training.data.made import ANOTHER, read_all, write_files

A, B, BEGIN, END = range(4)
NAMES = {"a": A, "b": B, "<s>": BEGIN, "</s>": END, "<unk>": 4}
SPECIAL = [("<s>", BEGIN), ("</s>", END)]
TEMPLATE = {"single": "<s> $A </s>", "pair": "<s> $A </s> <s> $B </s>", "special_tokens": SPECIAL}
PROCESSORS = {
    "template": processors.TemplateProcessing(**TEMPLATE),
    "sequence": processors.Sequence(
        [processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(**TEMPLATE)]
    ),
    "pair": processors.RobertaProcessing(("</s>", END), ("<s>", BEGIN)),
}


def save_words(path: Path, processor: str | None = "template") -> Path:
    """Save a tokenizer of two words."""
    loaded = Loaded(models.WordLevel(NAMES, unk_token="<unk>"))
    loaded.add_special_tokens(["<s>", "</s>"])
    loaded.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if processor is not None:
        loaded.post_processor = PROCESSORS[processor]
    loaded.save(str(path))
    return path


@pytest.fixture
def words(tmp_path):
    return save_words(tmp_path / "words.json")


@pytest.fixture
def made(tmp_path, words):
    """Make a data set of two documents, the second of which has its beginning written out."""
    write_files(tmp_path / "source", **{"0.txt": "a b a", "1.txt": "<s> b b"})

    def make(*, begins_texts: bool, folder: str = "text"):
        request = TextRequest(4, val_fraction=0, tokenizer=str(words), packing="documents", begins_texts=begins_texts)
        return prepare_text([tmp_path / "source"], tmp_path / folder, request)

    return make


@pytest.mark.parametrize(
    ("begins", "inputs"),
    [(False, [[A, B, A, END], [BEGIN, B, B, END]]), (True, [[BEGIN, A, B, A], [BEGIN, B, B, END]])],
)
def test_documents_begin_so_where_it_is_asked_for_and_prompts_as_documents_do(made, tmp_path, words, begins, inputs):
    summary = made(begins_texts=begins)
    found = read_all(tmp_path / "text" / "train")["input_ids"]
    assert [sample[:3] for sample in found] == [sample[:3] for sample in inputs]
    info = data_info(tmp_path / "text")
    assert (summary.template_begin, summary.begins_texts) == (info.template_begin, info.begins_texts) == ("<s>", begins)
    section = decoder_params(vocab_size=5)
    for tokenizer in (tokenizer_of(tmp_path / "text" / "train"), load_tokenizer(words, [tmp_path / "text"])):
        for asked, expected in ((None, begins), (False, False), (True, True)):
            [prompt] = encode_prompts(section, tokenizer, Request(["a b"], 4, special_tokens=asked))
            assert prompt == [BEGIN] * expected + [A, B]
    [prompt] = encode_prompts(section, load_tokenizer(words), Request(["a b"], 4))
    assert prompt == [BEGIN, A, B]


def test_a_tokenizer_that_is_named_stands_in_for_one_that_is_gone(tmp_path, made, words):
    made(begins_texts=False)
    (tmp_path / "text" / "tokenizer.json").unlink()
    none = {"train_dataloader": None, "val_dataloaders": (), "eval_dataloaders": ()}
    folders = (tmp_path / "text" / "train",)
    params = SimpleNamespace(model=decoder_params(vocab_size=5), path=tmp_path / "p.yaml", data_folders=folders, **none)
    found = tokenizer_of_texts(params, str(words))
    assert (found.name, found.begins_texts) == (str(words), False)


def test_both_are_data_sets_of_their_own(made, error_of):
    made(begins_texts=False)
    assert error_of(made, begins_texts=True) == f"DIR/text: {ANOTHER}"


def test_texts_of_preferences_always_begin_so(tmp_path, words):
    line = json.dumps({"prompt": "a", "chosen": "b", "rejected": "a"})
    (tmp_path / "pairs.jsonl").write_text(f"{line}\n" * 4)
    prepare_preferences([tmp_path / "pairs.jsonl"], tmp_path / "pairs", PreferencePlan(8, tokenizer=str(words)))
    assert tokenizer_of(tmp_path / "pairs").begins_texts is True


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("begins", [False, True])
def test_hugging_face_is_told_the_same(tmp_path, made, words, processor, begins):
    save_words(words, processor)
    made(begins_texts=begins)
    written = describe_tokenizer(tokenizer_of(tmp_path / "text"), decoder_params(vocab_size=5))
    loaded = Loaded.from_str(written.files["tokenizer.json"])
    assert loaded.encode("a b").ids == [BEGIN] * begins + [A, B, END]
    assert (loaded.encode("a", "b").ids[0] == BEGIN) is begins
    assert written.ids == {"bos_token_id": BEGIN if begins else None, "eos_token_id": END}
    assert ("bos_token" in json.loads(written.files["tokenizer_config.json"])) is begins


@pytest.mark.parametrize("asked", [{"tokenizer": "plain.json"}, {}, {"train_vocab": 300}])
def test_without_a_template_there_is_nothing_to_begin_with(tmp_path, made, monkeypatch, error_of, asked):
    monkeypatch.chdir(tmp_path)
    save_words(tmp_path / "plain.json", None)
    request = TextRequest(4, begins_texts=True, **asked)
    assert error_of(prepare_text, [tmp_path / "source"], tmp_path / "out", request) == (
        "--begin_texts: must stand beside a tokenizer whose template begins texts, "
        f"{asked.get('tokenizer', 'bytes')} does not\n"
        "hint: leave it out, or take a tokenizer.json with a template such as `<s> $A`"
    )
