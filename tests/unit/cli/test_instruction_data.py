"""`cstool data prepare instruct`, and `cstool data info --show`."""

import json
import re

import pytest

from cstool.training.commands import instruction_data
from tests.unit.training.data.chat_samples import LLAMA, messages, save_tokenizer, untagged

CHATS = [{"messages": messages(f"{n}?", f"{n}.")} for n in range(8)]


@pytest.fixture
def prepare(cstool, tmp_path):
    """Run `cstool data prepare instruct` on some records, with more arguments."""

    def run(*arguments, records=CHATS):
        lines = (record if isinstance(record, str) else json.dumps(record) for record in records)
        (tmp_path / "chats.jsonl").write_text("".join(f"{line}\n" for line in lines))
        common = ("--output", tmp_path / "out", "--sequence_length", "32", "--val_fraction", "0.2")
        return cstool("data", "prepare", "instruct", tmp_path / "chats.jsonl", *common, *arguments)

    return run


def said(outcome, tmp_path):
    return re.sub(r"in \d+\.\d s", "in S s", outcome.said.replace(str(tmp_path), "DIR")).splitlines()


def test_what_was_made_is_told(prepare, tmp_path):
    assert said(prepare(), tmp_path) == [
        "DIR/out: prepared in S s",
        "Form: messages (messages, role, content)",
        "Template: marks of text, by cstool",
        "part   conversations  rows  tokens  learned  padding",
        "train              6     6     132       24    31.2%",
        "val                2     2      44        8    31.2%",
        "Packed: a dataloader needs use_vsl: true",
    ]
    assert said(prepare(), tmp_path)[0] == "DIR/out: already prepared"
    document = prepare("--json").document
    assert document["train"] == {"conversations": 6, "samples": 6, "tokens": 24, "places": 132}


def test_what_is_unusual_is_told(prepare, tmp_path):
    saved = save_tokenizer(tmp_path / "tokenizer.json", merges=["Ċ c"])
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<s>"}')
    source = untagged(LLAMA).replace("+ '<|eot_id|>'", "").replace("'<|start_header_id|>'", "'<|none|>'")
    (tmp_path / "chat_template.jinja").write_text("<s>" + source)
    first = {"messages": messages("a\ufeff", "c</s>")}
    odd = [*({"messages": messages(*texts)} for texts in (("a",), ("a", ""), ("a" * 99, "b"))), "{"]
    flags = (
        "--tokenizer",
        saved,
        "--skip_broken",
        "--val_fraction",
        "0",
        "--packing",
        "none",
        "--sequence_length",
        "64",
    )
    lines = said(prepare(*flags, records=[first, *odd, *CHATS[:1]]), tmp_path)
    place = "the first at DIR/chats.jsonl"
    assert lines[2:3] + lines[6:] == [
        "Template: DIR/chat_template.jinja",
        "Tokenizer: DIR/out/tokenizer.json, 273 tokens",
        f"Left out: 1 conversation with roles out of order, {place}:2",
        f"Left out: 1 conversation with an empty answer, {place}:3",
        f"Left out: 1 conversation with more tokens than a row has room for, {place}:4",
        "Left out: 1 line that is no JSON object",
        f"Warning: in 3 conversations, {place}:1, the end of an assistant's turn is not learned, so a model may not "
        "stop; the template must write an end, within its tags of generation",
        f"Warning: in 3 conversations, {place}:1, the text has two begins; the template writes one too many",
        f"Warning: in 1 conversation, {place}:1, a message spells out a special token, and becomes it",
        f"Warning: in 1 conversation, {place}:1, a message has a byte order mark (U+FEFF)",
        f"Warning: in 1 conversation, {place}:1, a token across the begin or end of a learned text is learned",
        "Warning: the template writes <|none|>, no special token of the tokenizer",
    ]
    lines = said(prepare(*flags, "--truncate", "keep_end", "--overwrite", records=[first, *odd]), tmp_path)
    assert f"Cut: 1 conversation, {place}:4" in lines


def test_other_warnings_have_words_too(prepare, tmp_path):
    save_tokenizer(tmp_path / "tokenizer.json")
    source = "{% for m in messages if m.role != 'system' %}{{ m.role + m.content + '</s>' }}{% endfor %}"
    (tmp_path / "chat_template.jinja").write_text(source)
    records = [{"messages": messages("a", "b", system="c")}] * 2
    lines = said(prepare("--tokenizer", tmp_path / "tokenizer.json", records=records), tmp_path)
    place = "the first at DIR/chats.jsonl:1"
    assert lines[-1] == f"Warning: in 2 conversations, {place}, the template leaves out the system's message"


def test_learned_text_is_in_brackets_or_green(prepare, cstool, tmp_path):
    prepare()
    shown = cstool("data", "info", tmp_path / "out", "--show", "1")
    lines = shown.said.splitlines()
    place = lines.index("train, row 0, text 0: 23 tokens")
    first, second, *rest = lines[place + 1 :]
    number = first.removeprefix("User: ").removesuffix("?")
    assert (first, second, rest) == (f"User: {number}?", f"Assistant:[ {number}.\\x00]", [])
    [sample] = cstool("data", "info", tmp_path / "out", "--show", "1", "--json").document["samples"]
    assert sample == {"part": "train", "row": 0, "text": 0, "tokens": 23,
                      "pieces": [[f"User: {number}?\nAssistant:", False], [f" {number}.\x00", True]]}  # fmt: skip


def test_on_a_terminal_learned_text_is_green(prepare, cstool, tmp_path, monkeypatch):
    prepare()
    monkeypatch.setattr(instruction_data, "is_terminal", lambda _stream: True)
    for no_colour, expected in (("", "Assistant:\x1b[32m"), ("1", "Assistant:[")):
        monkeypatch.setenv("NO_COLOR", no_colour)
        assert expected in cstool("data", "info", tmp_path / "out", "--show", "1").stdout
