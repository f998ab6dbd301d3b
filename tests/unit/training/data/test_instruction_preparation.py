"""Data sets of conversations: made, read, described, shown, checked."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cstool.model.params import StockLoaderParams
from cstool.training.data import (
    InstructionPlan,
    ShownSample,
    check_data,
    data_info,
    instruction_preparation,
    open_hdf5_text,
    open_loader,
    open_part,
    prepare_instructions,
    shown_samples,
    tokenizer_of,
)
from cstool.training.data.dataset import section
from cstool.training.data.instruction_request import InstructionPart
from tests.unit.training.data.chat_samples import CHATML, messages, save_tokenizer, untagged
from tests.unit.training.data.encoder_files import read
from tests.unit.training.data.made import ANOTHER, content_of, preparer

LINES = [{"messages": messages(f"{n}+{n}?", f"{2 * n}.")} for n in range(20)]


@pytest.fixture
def prepare(tmp_path):
    """Write lines, objects as JSON, and prepare them; what is asked for may be changed."""

    def call(lines=LINES, output=tmp_path / "out", name="chats.jsonl", **changes):
        path = tmp_path / name
        path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
        usual = {"sequence_length": 64, "val_fraction": 0.2}
        return preparer(prepare_instructions, InstructionPlan, path, output, **usual)(**changes)

    return call


def texts(folder: Path, part: str = "train") -> list[str]:
    """Return the texts of a part, what is learned in brackets."""
    samples = shown_samples(folder, 1000, part=part)
    return ["".join(f"[{text}]" if learned else text for text, learned in sample.pieces) for sample in samples]


def told(numbers) -> list[str]:
    return [f"User: {n}+{n}?\nAssistant:[ {2 * n}.\0]" for n in numbers]


@pytest.mark.parametrize("packing", ["best_fit", "none"])
def test_conversations_are_made_held_out_and_read(prepare, tmp_path, packing):
    made, out = prepare(packing=packing), tmp_path / "out"
    held = [n for n in range(20) if told([n])[0] in texts(out, "val")]
    rest = [n for n in range(20) if n not in held]
    assert len(held) == 4
    assert sorted(texts(out, "val")) == sorted(told(held))
    assert sorted(texts(out)) == sorted(told(rest))
    places = {n: len(told([n])[0]) - 3 for n in range(20)}
    rows = [-(-sum(places[n] for n in part) // 64) if packing == "best_fit" else len(part) for part in (rest, held)]
    for part, numbers, count in ((made.train, rest, rows[0]), (made.val, held, rows[1])):
        tokens = sum(len(f" {2 * n}.\0") for n in numbers)
        expected = InstructionPart(len(numbers), part.samples, tokens, sum(places[n] for n in numbers))
        assert part == expected
        assert count <= part.samples <= count + 3
    assert (made.forms, made.templates) == (["messages (messages, role, content)"], ["marks of text, by cstool"])
    assert (made.left_out, made.broken, made.unknown, made.tokenizer) == ({}, 0, [], "bytes")
    assert check_data(out).findings == []
    info = data_info(out)
    assert (info.format, info.vocab_size, info.packing) == ("HDF5 of conversations", 256, packing)
    assert info.parts["train"].tokens == made.train.tokens
    assert info.parts["train"].padding == pytest.approx(1 - made.train.places / (64 * made.train.samples))
    size = sum(len(f"{n}+{n}?{2 * n}.") for n in range(20))
    form = "messages (messages, role, content); template: marks of text, by cstool"
    assert info.source == f"{tmp_path}/chats.jsonl, {size} bytes in 20 conversations, {form}"
    mask = read(open_part(out, "train"), range(made.train.samples))["mask"]
    assert sum(map(sum, mask)) == made.train.tokens


def test_packed_rows_are_read_as_texts_that_do_not_see_each_other(prepare, tmp_path):
    prepare(val_fraction=0)
    dataset = open_hdf5_text([tmp_path / "out" / "train"], is_packed=True)
    out = read(dataset, [0])
    [ids], [labels], [mask], [segments] = (np.array(out[key]) for key in ("input_ids", "labels", "mask", "segments"))
    shown = [sample for sample in shown_samples(tmp_path / "out", 1000) if sample.row == 0]
    for number, sample in enumerate(shown, 1):
        here = segments == number
        text = "".join(text for text, _ in sample.pieces).encode()
        learned = "".join(text for text, is_learned in sample.pieces if is_learned).encode()
        assert bytes(ids[here].astype(np.uint8)) == text[:-1]
        assert bytes(labels[here & (mask == 1)].astype(np.uint8)) == learned
    assert segments[-1] >= len(shown) > 1


def test_packed_rows_are_refused_where_they_would_see_each_other(prepare, tmp_path, error_of):
    for packing in ("best_fit", "none"):
        prepare(output=tmp_path / packing, packing=packing)
    keys = {"data_processor": "GptHDF5MapDataProcessor", "mixture": (), "split": None, "max_sequence_length": None}
    loaders = [
        section(StockLoaderParams, [tmp_path / packing / "train"], use_vsl=packed, **keys)
        for packing, packed in (("best_fit", True), ("none", False), ("best_fit", False))
    ]
    for loader in loaders[:2]:
        open_loader(loader).close()
    assert error_of(open_loader, loaders[2]) == (
        "DIR/best_fit/train: rows of several conversations need use_vsl: true in the dataloader, got false\n"
        "hint: conversations would see each other; `cstool data prepare instruct --packing none` makes rows of one each"
    )


@settings(max_examples=12, deadline=None)
@given(lengths=st.lists(st.integers(1, 40), min_size=2, max_size=30), length=st.integers(24, 40))
def test_nothing_is_lost_in_rows(tmp_path_factory, lengths, length):
    folder = tmp_path_factory.mktemp("rows")
    pairs = [{"prompt": chr(97 + n % 26) * size, "completion": str(n)} for n, size in enumerate(lengths)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    kept = [f"{pair['prompt']}\n[{pair['completion']}\0]" for pair in pairs]
    kept = [text for text in kept if len(text) - 3 <= length]
    plan = InstructionPlan(length, val_fraction=0)
    if kept:
        made = prepare_instructions([folder / "pairs.jsonl"], folder / "out", plan)
        assert sorted(texts(folder / "out")) == sorted(kept)
        assert made.train.conversations == len(kept)
        assert sum(count for count, _ in made.left_out.values()) == len(pairs) - len(kept)
        assert check_data(folder / "out").findings == []


def test_which_are_held_out_follows_from_the_seed(prepare, tmp_path):
    for name, changes in (("one", {}), ("again", {}), ("two", {"seed": 2})):
        prepare(output=tmp_path / name, **changes)
    assert sorted(texts(tmp_path / "one", "val")) != sorted(texts(tmp_path / "two", "val"))
    assert content_of(tmp_path / "one") == content_of(tmp_path / "again")


def test_progress_comes_to_the_end_what_was_made_is_kept_and_nothing_else_replaced(prepare, tmp_path, error_of):
    reported = []
    first, again = prepare(progress=lambda *state: reported.append(state)), prepare()
    size = (tmp_path / "chats.jsonl").stat().st_size
    assert reported == [(size, size)]
    assert again == replace(first, already_prepared=True, duration_s=again.duration_s)
    for changes in ({"seed": 5}, {"packing": "none"}, {"truncate": "keep_end"}, {"chat_template": "cstool"}):
        assert error_of(prepare, **changes) == f"DIR/out: {ANOTHER}"
    assert prepare(seed=5, overwrite=True).already_prepared is False
    many = [LINES[0]] * 600
    prepare(many, tmp_path / "many", progress=lambda *state: reported.append(state))
    assert len(reported) == 4
    assert reported == sorted(reported)


@pytest.fixture
def chatml(tmp_path):
    """Save a tokenizer with a template; return its path."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "chat_template.jinja").write_text(untagged(CHATML) + "{# <|none|> #}")
    (tmp_path / "model" / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    return save_tokenizer(tmp_path / "model" / "tokenizer.json", merges=["H i"])


def test_tokenizer_and_template_are_copied_and_found_again(prepare, tmp_path, chatml):
    made, out = prepare(tokenizer=str(chatml)), tmp_path / "out"
    assert sorted(path.name for path in out.iterdir()) == [
        "chat_template.jinja", "prepared.json", "tokenizer.json", "tokenizer_config.json", "train", "val",
    ]  # fmt: skip
    assert (made.templates, made.unknown) == ([f"{tmp_path}/model/chat_template.jinja"], ["<|none|>"])
    assert "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n[4.<|im_end|>]" in texts(out)
    assert tokenizer_of(out).vocab_size == made.vocab_size
    again = prepare(output=tmp_path / "again", tokenizer=str(out / "tokenizer.json"))
    assert again.train == made.train
    assert texts(tmp_path / "again") == texts(out)
    assert check_data(out).findings == []


def test_pairs_are_joined_or_written_by_a_template(prepare, tmp_path, chatml):
    pairs = (("Say hi.", "", "Hi."), ("Add.", "1", "2"))
    lines = [dict(zip(("instruction", "input", "output"), each, strict=True)) for each in pairs]
    plain = {"tokenizer": str(chatml), "chat_template": "plain"}
    for name, changes, expected in (
        ("bytes", {}, ["Say hi.\n[Hi.\0]", "Add.\n1\n[2\0]"]),
        ("separated", {"separator": " -> "}, ["Say hi. -> [Hi.\0]", "Add.\n1 -> [2\0]"]),
        ("ours", {"chat_template": "cstool"}, ["User: Say hi.\nAssistant:[ Hi.\0]", "User: Add.\n1\nAssistant:[ 2\0]"]),
        ("plain", plain, ["Say hi.\n[Hi.<|im_end|>]", "Add.\n1\n[2<|im_end|>]"]),
        ("chatml", {"tokenizer": str(chatml)}, [
            "<|im_start|>user\nSay hi.<|im_end|>\n<|im_start|>assistant\n[Hi.<|im_end|>]",
            "<|im_start|>user\nAdd.\n1<|im_end|>\n<|im_start|>assistant\n[2<|im_end|>]",
        ]),
    ):  # fmt: skip
        prepare(lines, tmp_path / name, val_fraction=0, sequence_length=99, **changes)
        assert sorted(texts(tmp_path / name)) == sorted(expected)


def test_files_of_several_forms_make_one_data_set(prepare, tmp_path):
    (tmp_path / "more.json").write_text(json.dumps([{"prompt": "a", "completion": "b"}]))
    made = prepare(val_fraction=0, sources=[tmp_path / "more.json", tmp_path / "chats.jsonl"])
    assert made.forms == ["messages (messages, role, content)", "prompt_completion (prompt, completion)"]
    assert made.templates == ["marks of text, by cstool", ""]
    assert made.train.conversations == 21


def test_what_is_left_out_is_counted_with_its_first_place(prepare, tmp_path):
    odd = [
        {"messages": messages("a", "b")[::-1]},
        {"messages": messages("a", " ")},
        {"messages": messages("a" * 99, "b")},
        {"messages": messages("a", "b" * 99)},
        "{",
    ]
    made = prepare([*LINES, *odd], skip_broken=True)
    place = f"{tmp_path}/chats.jsonl"
    assert made.left_out == {
        "roles out of order": (1, f"{place}:21"),
        "an empty answer": (1, f"{place}:22"),
        "more tokens than a row has room for": (2, f"{place}:23"),
    }
    assert made.notes == {}
    assert (made.train.conversations + made.val.conversations, made.broken) == (20, 1)
    made = prepare([*LINES, *odd], skip_broken=True, truncate="keep_end", overwrite=True)
    assert made.notes["cut"] == (2, f"{tmp_path}/chats.jsonl:23")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sequence_length": 1}, "--sequence_length: must be from 2 to 1,048,576, got 1"),
        ({"val_fraction": 1.0}, "--val_fraction: must be at least 0 and less than 1, got 1.0"),
        ({"tokenizer": "no.json"}, "no.json: must be bytes or a tokenizers JSON file, found nothing there"),
        ({"lines": [*LINES, "{"]}, "DIR/chats.jsonl:21: must be a JSON object, got its end after 1 characters\n"
         "hint: --skip_broken leaves such lines out"),
        ({"lines": LINES[:1]}, "DIR/chats.jsonl: must have at least 2 conversations to learn from, got 1 of 1"),
        ({"lines": [], "val_fraction": 0}, "DIR/chats.jsonl: must hold files of text, got none\n"
         "hint: give files, or folders with files that are not empty"),
        ({"sequence_length": 4},
         "DIR/chats.jsonl: must have at least 2 conversations to learn from, got 0 of 20; left out are 20 with more "
         "tokens than a row has room for\n"
         "hint: a larger --sequence_length has room for more, --truncate cuts them"),
        ({"sequence_length": 4, "truncate": "keep_end", "val_fraction": 0},
         "DIR/chats.jsonl: must have at least 1 conversations to learn from, got 0 of 20; left out are 20 with nothing "
         "to learn"),
        ({"chat_template": "plain"}, "DIR/chats.jsonl:1: messages need a template, got --chat_template plain\n"
         "hint: leave it out, or give cstool or a file"),
    ],
)  # fmt: skip
def test_what_no_data_set_can_be_made_of_is_refused(prepare, tmp_path, error_of, changes, message):
    assert error_of(prepare, **changes) == message
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / ".out.partial").exists()


def test_damage_is_found(prepare, tmp_path):
    made, out = prepare(), tmp_path / "out"
    record = json.loads((out / "prepared.json").read_text())
    record["parts"]["train"]["samples"] += 1
    (out / "prepared.json").write_text(json.dumps(record))
    (out / "val" / "data_00000.h5").unlink()
    count = made.train.samples
    assert check_data(out).findings == [
        f"{out}/val/data_00000.h5: must be there, found nothing",
        f"{out}/train: must have {count + 1} samples as it was made, got {count}",
        f"{out}/val: must have {made.val.samples} samples as it was made, got 0",
        f"{out}/val: must have {made.val.tokens} tokens as it was made, got 0",
    ]


def test_conversations_without_exact_regions_are_counted(prepare, tmp_path, error_of, monkeypatch):
    # Of long texts this template writes the characters in another order.
    content = "{% if m.content | length > 5 %}{{ m.content | upper }}{% else %}{{ m.content }}{% endif %}"
    (tmp_path / "a.jinja").write_text(f"{{% for m in messages %}}[{{{{ m.role }}}}]{content}{{% endfor %}}")
    lines = [{"messages": messages("a", "b" * n)} for n in (2, 6, 7, 3, 8)]
    asked = {"lines": lines, "chat_template": str(tmp_path / "a.jinja")}
    told = (
        "the template must write the assistant's text, DIR/a.jinja leaves some of it out; such are {}\n"
        "hint: it may take contents as lists of parts; --chat_template names another one"
    )
    assert error_of(prepare, **asked) == f"DIR/chats.jsonl:2: {told.format('3 of 5 records')}"
    monkeypatch.setattr(instruction_preparation, "_MOST_INEXACT", 2)
    assert error_of(prepare, **asked) == f"DIR/chats.jsonl:2: {told.format('2 of 3 records')}"
    asked["lines"] = lines[:2]
    assert error_of(prepare, **asked) == f"DIR/chats.jsonl:2: {told.replace('; such are {}', '')}"


def test_samples_are_shown_in_pieces(prepare, tmp_path, error_of):
    prepare()
    [first] = shown_samples(tmp_path / "out", 1)
    assert first.pieces == [(first.pieces[0][0], False), (first.pieces[1][0], True)]
    assert first == ShownSample("train", 0, 0, sum(len(text) for text, _ in first.pieces), first.pieces)
    assert len(shown_samples(tmp_path / "out", 99, part="val")) == 4
    assert shown_samples(tmp_path / "out", 0) == []
    (tmp_path / "out" / "prepared.json").unlink()
    message = "DIR/out: --show needs the tokenizer of the data set, which is not known\nhint: leave it out"
    assert error_of(shown_samples, tmp_path / "out", 1) == message


def test_pictures_are_not_shown(mnist, tmp_path, error_of):
    for part in ("train", "t10k"):
        mnist(part, 3)
    message = "DIR/mnist: --show needs samples of text, got MNIST IDX\nhint: leave it out"
    assert error_of(shown_samples, tmp_path / "mnist", 1) == message
