"""Data sets by files of the vendor's preprocessing: rows are those of the vendor's code; keys have their fates."""

import copy
import json
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import yaml

from cstool.foundation.errors import CstoolError
from cstool.training.data import (
    check_data,
    data_info,
    preprocess,
    read_preprocess_file,
    shown_samples,
    tokenizer_of,
)
from cstool.training.data.preprocessing import PreprocessedPart
from tests.reference.preprocessing_cases import CASES, HOOKS, PLACE, write_tokenizer
from tests.unit.training.data.made import refusals

RECORDED = json.loads(PLACE.read_text())["rows"]
LLAMA3 = (
    "cerebras.modelzoo.data_preparation.data_preprocessing.custom_tokenizer_example.CustomLlama3Tokenizer:"
    "CustomLlama3Tokenizer"
)


@pytest.fixture
def made(tmp_path, monkeypatch) -> Callable[..., Any]:
    """Make the data set of a case in a folder, with other values by dotted key; return its summary."""
    monkeypatch.chdir(tmp_path)

    def make(
        name: str,
        records: Any = None,
        *,
        source: str = "records.jsonl",
        overwrite: bool = False,
        sets: Any = (),
        **changes: Any,
    ):
        case = copy.deepcopy(CASES[name])
        write_tokenizer(tmp_path / "tok", template=case["template"], begins=case["begins"])
        if records is not False:
            lines = case["records"] if records is None else records
            Path(source).write_text(
                "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
            )
        config = {
            "setup": {"data": {"type": "local", "source": source}, "mode": case["mode"], "output_dir": "out"},
            "processing": {
                **case["processing"],
                "huggingface_tokenizer": "tok",
                "read_hook": HOOKS + case["hook"],
                "read_hook_kwargs": case["kwargs"],
            },
            "dataset": case["dataset"],
        }
        for key, value in changes.items():
            holder: Any = config
            *above, last = key.split("__")
            for part in above:
                holder = holder[part]
            holder[last] = value
        Path("config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
        return preprocess(read_preprocess_file(Path("config.yaml"), sets), overwrite=overwrite)

    return make


def here(text: str) -> str:
    """Return a text without the working directory."""
    return text.replace(f"{Path.cwd()}/", "")


def refusal(make: Callable[..., Any], *arguments: Any, **changes: Any) -> str:
    """Return the whole error of a data set that is not made, without the lines of the file."""
    with pytest.raises(CstoolError) as caught:
        make(*arguments, **changes)
    return re.sub(r"config\.yaml:\d+: ", "", here(str(caught.value)))


def rows_in(folder: str = "out") -> np.ndarray[Any, Any]:
    with h5py.File(Path(folder) / "data_00000.h5") as file:
        return np.asarray(file["data"])


def texts(part: str = "train") -> list[str]:
    """Return the texts of a data set, what is learned in brackets."""
    samples = shown_samples(Path("out"), 100, part=part)
    return ["".join(f"[{text}]" if learned else text for text, learned in sample.pieces) for sample in samples]


@pytest.mark.parametrize("name", CASES)
def test_rows_are_those_of_the_vendors_token_generators(made, name):
    summary, found = made(name), rows_in()
    expected = np.array([[np.array(feature.split(), np.int32) for feature in row] for row in RECORDED[name]])
    assert found.shape == expected.shape
    for ids, mask, labels in np.arange(found.shape[1]).reshape(-1, 3):
        np.testing.assert_array_equal(found[:, mask], expected[:, mask])
        learned = expected[:, mask] == 1
        np.testing.assert_array_equal(found[:, labels][learned], expected[:, labels][learned])
        # Behind the last token that is read, inputs are padding, which is the vendor's own.
        for row, theirs in zip(found[:, ids], expected[:, ids], strict=True):
            end = np.flatnonzero(row)[-1] + 1
            np.testing.assert_array_equal(row[:end], theirs[:end])
    assert summary.parts["train"].samples == len(found)
    assert summary.parts["train"].tokens == (expected[:, 1::3] == 1).sum()
    kind = {"pretraining": "HDF5 text", "dpo": "HDF5 of preferences"}.get(summary.mode, "HDF5 of conversations")
    assert data_info(Path("out")).format == kind
    assert check_data(Path("out")).findings == []


def test_what_is_left_out_is_counted_and_the_same_file_makes_nothing_twice(made):
    summary = made("chats")
    assert {reason: (count, here(where)) for reason, (count, where) in summary.left_out.items()} == {
        "roles out of order": (2, "records.jsonl:3"),
        "an empty text": (2, "records.jsonl:5"),
        "more tokens than max_seq_length, or than truncate_to_msl may cut": (1, "records.jsonl:2"),
    }
    assert {kind: (count, here(where)) for kind, (count, where) in summary.notes.items()} == {
        "endless": (1, "records.jsonl:6")
    }
    assert summary.parts == {"train": PreprocessedPart(3, 3, 27, 120)}
    assert made("chats").already_prepared
    with pytest.raises(CstoolError, match="got one made from other text or with other arguments"):
        made("chats", processing__min_sequence_len=4)
    shortened = made("chats", processing__min_sequence_len=42, overwrite=True)
    assert shortened.left_out["fewer tokens than min_sequence_len"][0] == 2
    assert tokenizer_of(Path("out")).vocab_size == summary.vocab_size  # type: ignore[union-attr]


def test_a_template_is_told_where_it_writes_the_texts(made):
    templates = {name: made(name, overwrite=True).template for name in ("pairs", "texts", "numbers", "pairs as chats")}
    own = "chat_template of tok/tokenizer_config.json"
    assert templates == {"pairs": "", "texts": "", "numbers": "", "pairs as chats": own}
    assert made("preferences", overwrite=True).template == own


def test_what_fits_exactly_is_kept(made):
    records = [{"x": [5, 6, 7], "y": [8] * count} for count in (7, 8, 9)]
    summary = made("numbers", records)
    assert (summary.parts["train"].records, [*summary.left_out.values()][0][0]) == (2, 1)
    turns = [("user", "a"), ("assistant", "b"), ("user", "c"), ("user", "d")]
    odd = {"messages": [{"role": role, "content": text} for role, text in turns]}
    assert [*made("chats", [odd, *CASES["chats"]["records"]], overwrite=True).left_out.items()][0][1][0] == 3


def test_packed_texts_are_the_same_texts(made):
    made("pairs")
    single = texts()
    summary = made("pairs", overwrite=True, dataset__use_vsl=True)
    assert (summary.packed, rows_in().shape) == (True, (2, 5, 40))
    assert sorted(texts()) == sorted(single)
    made("texts", overwrite=True, dataset__use_vsl=True)
    assert texts()[0] == "<|begin|>[the man and the sea and]"


def test_splits_have_the_records_in_folders_and_shuffled_rows_are_the_same(made):
    records = [{"q": f"{n}?", "a": f"{n}!"} for n in range(40)]
    made("pairs", records)
    whole = texts()
    made("pairs", records, overwrite=True, processing__shuffle=True)
    assert (texts() != whole, sorted(texts()) == sorted(whole)) == (True, True)
    splits = {"train": {"split_fraction": 0.5}, "val": {"split_fraction": 0.25}, "test": {"split_fraction": 0.25}}
    summary = made("pairs", records, overwrite=True, setup__data_splits=splits)
    assert [*summary.parts] == [*splits]
    assert sorted(text for part in splits for text in texts(part)) == sorted(whole)
    assert summary.parts["train"].records > summary.parts["test"].records > 0
    assert sorted(path.name for path in Path("out").iterdir() if path.is_dir()) == ["test", "train", "val"]
    assert check_data(Path("out")).findings == []


def test_records_are_of_many_kinds_of_files_and_of_a_split(made, tmp_path):
    made("texts, one by one", ["the man", "", "an end"], source="a.txt")
    assert texts() == ["<|begin|>[the man<|eos|>]", "<|begin|>[an end<|eos|>]"]
    folder = tmp_path / "hub"
    (folder / "data").mkdir(parents=True)
    (folder / "train.csv").write_text("q,a\none,1\n")
    (folder / "data" / "validation-00000.json").write_text('[{"q": "two", "a": 2}]')
    hub = {"setup__data__type": "huggingface", "source": "hub", "overwrite": True, "records": False}
    for split, text in (("train", "one<|sep|>[1<|eos|>]"), ("val", "two<|sep|>[2<|eos|>]")):
        made("pairs", **hub, setup__data__split=split)
        assert texts() == [f"<|begin|>{text}"]
    assert refusal(made, "pairs", **hub, setup__data__split="test") == (
        "hub: must hold files of the split test, got none whose name begins so\n"
        "hint: call them test.jsonl or test-00000.parquet, or leave setup.data.split out"
    )
    (folder / "data" / "more.jsonl.zst").touch()
    assert refusal(made, "pairs", **hub) == (
        "hub/data/more.jsonl.zst: must be unpacked: of packed files nothing is read\nhint: gunzip or zstd -d does it"
    )


def test_the_vendors_names_of_tokenizers_mean_files(made, tmp_path):
    made("pairs")
    whole = texts()
    none = {"processing__huggingface_tokenizer": None, "overwrite": True}
    params = {"pretrained_model_name_or_path": "tok"}
    made("pairs", **none, processing__custom_tokenizer=LLAMA3, processing__tokenizer_params=params)
    assert texts() == whole
    params = {"encoder_file": "tok/tokenizer.json"}
    made("pairs", **none, processing__custom_tokenizer="neoxtokenizer", processing__tokenizer_params=params)
    assert texts() == whole
    model = json.loads((tmp_path / "tok" / "tokenizer.json").read_text())["model"]
    Path("vocab.json").write_text(json.dumps(model["vocab"]))
    Path("merges.txt").write_text("".join(f"{' '.join(pair)}\n" for pair in model["merges"]))
    params = {"encoder_file": "vocab.json", "vocab_file": "merges.txt"}
    made("pairs", **none, processing__custom_tokenizer="gpt2tokenizer", processing__tokenizer_params=params)
    assert texts()[1] == "a<|sep|>[b<|endoftext|>]"
    made("pairs", overwrite=True, processing__eos_id=259)
    assert texts()[1].startswith("<|begin|>a<|sep|>[b")


def test_texts_are_mended_by_ftfy_where_it_may_change_them(made, monkeypatch):
    fixes = []
    monkeypatch.setitem(sys.modules, "ftfy", None)
    made("pairs", [{"q": "plain", "a": "text"}], processing__use_ftfy=True)
    assert refusal(made, "pairs", processing__use_ftfy=True, overwrite=True) == (
        "records.jsonl:3: use_ftfy: true needs the package ftfy for this text, which is not installed\n"
        "hint: pip install 'cstool[ftfy]', or ftfy itself; --set processing.use_ftfy=false takes texts as they are"
    )

    def fix_text(text: str, *, normalization: str) -> str:
        fixes.append(normalization)
        return text.replace("“", '"')

    monkeypatch.setitem(sys.modules, "ftfy", types.SimpleNamespace(fix_text=fix_text))
    made(
        "pairs", [{"q": "“a", "a": "b"}], processing__use_ftfy=True, processing__ftfy_normalizer="NFKC", overwrite=True
    )
    assert (texts(), fixes) == (['<|begin|>"a<|sep|>[b<|eos|>]'], ["NFKC"])


def test_keys_are_acted_on_noted_or_warned_of(made):
    summary = made(
        "pairs",
        setup__processes=4,
        processing__write_in_batch=True,
        processing__semantic_loss_weight={"text": 0},
        dataset__truncate_to_msl={"truncation_mode": "keep_start", "max_turn_length": 8},
        dataset__pack_sequences=True,
    )
    assert summary.without_effect == (
        "setup.processes: accepted, no effect",
        "processing.write_in_batch: accepted, no effect",
        "dataset.truncate_to_msl.truncation_mode: accepted, no effect",
        "dataset.pack_sequences: accepted, no effect: mode: finetuning does not read it",
    )
    assert summary.warnings == [
        "config.yaml:21: prompt_truncation_mode is not given, so keep_end is taken",
        "config.yaml:18: a weight of 0 counts as none given: answers are learned",
    ]
    assert len(summary.left_out) == 1


TABLE = """
{setup__mode: embedding_training} => setup.mode must be pretraining, finetuning, dpo or nlg, got 'embedding_training'
{setup__mode: dpo} => processing.read_hook must be a hook for mode: dpo, got 'prompt_completion_text_read_hook'
    hint: these are dpo_read_hook
{setup__data__source: org/name} => setup.data.source must be a file or folder that is there, got 'org/name'
{setup__context_splits: {MSL_List: [1]}} => not supported: setup.context_splits
    hint: leave it out
{setup__data_splits: {a: {split_fraction: 0.5}}} => setup.data_splits must have fractions that add up to 1
{setup__data_splits: {a/b: {split_fraction: 1.0}}} => setup.data_splits must have names of folders
{processing__read_hook: a:b} => processing.read_hook must be HOOKSNAME with a known name, got 'a:b'
    hint: the hooks are text_read_hook, chat_read_hook, prompt_completion_text_read_hook, prompt_completion_chat_read_hook, dpo_read_hook, nlg_read_hook
{processing__read_hook_kwargs: {prompt_key: q}} => processing.read_hook_kwargs.completion_key is missing
{processing__huggingface_tokenizer: org/name} => processing.huggingface_tokenizer must be a folder with a tokenizer.json, got 'org/name'
    hint: nothing is fetched from a hub: get it first
{processing__huggingface_tokenizer: null} => processing must have huggingface_tokenizer or custom_tokenizer
{processing__custom_tokenizer: mine:Mine} => processing.custom_tokenizer cannot stand beside huggingface_tokenizer, got 'mine:Mine'
    hint: keep one of the two
{processing__huggingface_tokenizer: null, processing__custom_tokenizer: mine:Mine} => not supported: processing.custom_tokenizer: mine:Mine
    hint: supported: gpt2tokenizer, neoxtokenizer, ...:CustomLlama3Tokenizer
{processing__huggingface_tokenizer: null, processing__custom_tokenizer: neoxtokenizer} => processing.tokenizer_params.encoder_file must be given for custom_tokenizer: neoxtokenizer
{processing__huggingface_tokenizer: null, processing__custom_tokenizer: LLAMA3} => processing.tokenizer_params.pretrained_model_name_or_path must be given
{setup__data: {type: huggingface, source: org/name}} => setup.data.source must be a file or folder that is there, got 'org/name'
    hint: nothing is fetched from a hub: save the data set there as JSON Lines or Parquet
{processing__semantic_loss_weight: {text: 0.5}} => processing.semantic_loss_weight must be 0 or 1 for text: masks are whole numbers
{processing__semantic_drop_mask: {text: true}} => processing.semantic_drop_mask must not drop text: all that the hooks read is text
{processing__wikitext_detokenize: true} => not supported: processing.wikitext_detokenize: true
    hint: leave it out
{processing__inverted_mask: true} => not supported: processing.inverted_mask: true
    hint: supported: false
{processing__short_seq_prob: 0.5} => not supported: processing.short_seq_prob: 0.5
    hint: supported: 0
{processing__eos: 1} => processing.eos is not a known key
    hint: did you mean eos_id?
{setup__data_splits: {a: {split_fraction: 1.0, context_splits: {}}}} => setup.data_splits.a.context_splits is not supported
    hint: one max_seq_length holds for all splits
{dataset__training_objective: mlm} => dataset.training_objective is not supported, got 'mlm'
    hint: `cstool data prepare mlm` and `span` make data sets for encoders
{dataset__fim_prefix_tok: <p>} => not supported: dataset.fim_prefix_tok: <p>
    hint: leave it out
{dataset__is_multimodal: true} => not supported: dataset.is_multimodal: true
    hint: leave it out
"""  # noqa: E501


@pytest.mark.parametrize(("changes", "message"), refusals(TABLE.replace("LLAMA3", LLAMA3).replace("HOOKS", HOOKS)))
def test_what_cannot_be_done_is_refused(made, changes, message):
    assert refusal(made, "pairs", **changes) == message


def test_all_faults_of_a_file_are_told_at_once_with_their_lines(made):
    with pytest.raises(CstoolError) as caught:
        made("pairs", setup__mod="dpo", processing__max_seq_length=1, sets=["dataset.use_vsl=maybe"])
    assert str(caught.value).splitlines() == [
        "config.yaml:7: setup.mod is not a known key",
        "hint: did you mean mode?",
        "config.yaml:9: processing.max_seq_length must be at least 2, got 1",
        "--set dataset.use_vsl=maybe: must be true or false, got 'maybe'",
    ]


BROKEN = [
    ("pairs", [{"q": ["a"], "a": "b"}], "records.jsonl:1: must have a text under q, got something else"),
    ("chats", [{"messages": "a"}], "records.jsonl:1: must have a list of messages under messages, got another"),
    (
        "chats",
        [{"messages": [{"content": "a"}]}],
        'records.jsonl:1: message 1: must have a role under role, got an object with "content"',
    ),
    (
        "chats",
        [{"messages": [{"role": "user", "content": ["a"]}]}],
        "records.jsonl:1: message 1: must have a text under content, got something else",
    ),
    ("numbers", [{"x": ["a"], "y": [1]}], "records.jsonl:1: must have a list of token ids under x, got something else"),
    ("numbers", [{"x": [999], "y": [1]}], "records.jsonl:1: token ids must be below the tokenizer's 268, got 999"),
    (
        "dialogues",
        [{"c": [{}], "r": [{}]}],
        "records.jsonl:1: must have two messages with content under c and r, got something else",
    ),
    (
        "pairs",
        [{"q": "a"}],
        "records.jsonl: must have records to learn from, got none of 1; left out are 1 with an empty text",
    ),
]


@pytest.mark.parametrize(("name", "records", "message"), BROKEN)
def test_records_of_another_form_are_refused(made, name, records, message):
    assert refusal(made, name, records) == message


def test_faults_of_templates_tokens_and_files_are_told(made):
    template = "{% for m in messages %}{{ m['role'] }}{% endfor %}"
    assert refusal(made, "chats", dataset__chat_template=template) == (
        "records.jsonl:1: the template must write all messages in order, dataset.chat_template does not\n"
        "hint: leave the record out, or give another dataset.chat_template"
    )
    raising = {"dataset__chat_template": "{{ raise_exception('no') }}"}
    failed = "records.jsonl:1: dataset.chat_template: must write the conversation, got: no"
    assert refusal(made, "chats", **raising) == failed
    beside = Path("tok/chat_template.jinja")
    beside.write_text("-")
    assert refusal(made, "preferences") == (
        "records.jsonl:1: the template must write the answer, tok/chat_template.jinja does not\n"
        "hint: leave the record out, or take another tokenizer"
    )
    beside.write_text(raising["dataset__chat_template"])
    assert refusal(made, "preferences") == failed.replace("dataset.chat_template", "tok/chat_template.jinja")
    beside.unlink()
    noncharacter = [{"role": "user", "content": "\ufdd0"}, {"role": "assistant", "content": "a"}]
    assert refusal(made, "chats", [{"messages": noncharacter}]) == (
        "records.jsonl:1: must be made of characters, got U+FDD0, which is none"
    )
    Path("bare").mkdir()
    Path("bare/tokenizer.json").write_bytes(Path("tok/tokenizer.json").read_bytes())
    assert refusal(made, "pairs", processing__huggingface_tokenizer="bare") == (
        "bare/tokenizer.json: must have a token that ends texts, got none\n"
        "hint: processing.eos_id gives one; in a tokenizer_config.json beside it, eos_token does"
    )
    assert refusal(made, "pairs", processing__eos_id=999) == "processing.eos_id: must be below the 268 tokens, got 999"
    assert refusal(made, "pairs", ["{"]) == (
        "records.jsonl:1: must be a JSON object, got its end after 1 characters\n"
        "hint: processing.UNSAFE_skip_jsonl_decoding_errors: true leaves such lines out"
    )
    assert made("pairs", ["{", {"q": "a", "a": "b"}], processing__UNSAFE_skip_jsonl_decoding_errors=True).broken == 1
    files = {"encoder_file": "vocab.json", "vocab_file": "gone.txt"}
    changes = {"processing__huggingface_tokenizer": None, "processing__custom_tokenizer": "gpt2tokenizer"}
    Path("vocab.json").write_text("{}")
    assert refusal(made, "pairs", **changes, processing__tokenizer_params=files) == (
        "processing.tokenizer_params.vocab_file must be a file that is there, got 'gone.txt'"
    )
    Path("gone.txt").write_text("a b c d\n")
    assert refusal(made, "pairs", **changes, processing__tokenizer_params=files).startswith(
        "vocab.json and gone.txt: must be a vocabulary and merges, got: "
    )


def test_lists_of_messages_are_preferences_too(made):
    both = [{"role": "user", "content": " Why? "}]
    record = {
        key: [*both, {"role": "assistant", "content": text}] for key, text in (("c", "the end"), ("r", "an hour"))
    }
    made("dialogues", [record])
    listed = rows_in()
    made("dialogues", [{key: [*value, *both] for key, value in record.items()}], overwrite=True)
    np.testing.assert_array_equal(rows_in(), listed)
    made("preferences", [{"p": "Why?", "c": "the end", "r": "an hour"}], overwrite=True, processing__max_seq_length=120)
    # The tokenizer of the one case has a template, that of the other has none.
    assert listed.shape == rows_in().shape == (1, 6, 120)
