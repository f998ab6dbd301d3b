"""Making a data set for span corruption."""

import sys
from dataclasses import fields

import pytest

from cstool.data import SpanTextPlan, check_data, data_info, open_part, prepare_span_text
from cstool.data.sequence_pairs import PairRequest
from cstool.data.text_spans import open_text_spans
from tests.unit.data.encoder_files import read
from tests.unit.data.made import content_of

LINES = ["the cat sat on the mat .", "a dog, and a dog's mat!", 'Café <unk> sat \\ "on" it']


@pytest.fixture
def source(tmp_path):
    """Twelve files of words."""
    folder = tmp_path / "source"
    folder.mkdir()
    for number in range(12):
        (folder / f"{number:02d}.txt").write_text("\n".join(LINES[(number + i) % 3] for i in range(4 + number)) + "\n")
    return folder


@pytest.fixture
def prepare(tmp_path, source):
    """Prepare the source with inputs of 32 tokens; what is asked for may be changed."""
    asked = {field.name for field in fields(SpanTextPlan)}

    def call(**changes):
        plan = {"sequence_length": 32, "val_fraction": 0.3}
        plan |= {} if "tokenizer" in changes else {"vocab_size": 280}
        plan |= {name: value for name, value in changes.items() if name in asked}
        others = {name: value for name, value in changes.items() if name not in asked}
        arguments = {"sources": [source], "output": tmp_path / "made", "plan": SpanTextPlan(**plan)}
        return prepare_span_text(**arguments | others)

    return call


def lines_of(folder) -> list[list[str]]:
    return [line.split() for path in sorted(folder.glob("*.txt")) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("packing", ["stream", "documents"])
def test_the_text_is_in_the_lines(tmp_path, source, prepare, packing):
    from tokenizers import Tokenizer

    made = prepare(packing=packing, val_fraction=0)
    found = lines_of(tmp_path / "made" / "train")
    assert (made.train.samples, made.train.tokens) == (len(found), sum(map(len, found)))
    tokenizer = Tokenizer.from_file(str(tmp_path / "made" / "tokenizer.json"))
    words = (tmp_path / "made" / "vocab.txt").read_text().splitlines()
    assert words == [tokenizer.id_to_token(number) for number in range(280)]
    assert words[:4] == ["<pad>", "</s>", "<unk>", "<s>"]
    texts = [path.read_text() for path in sorted(source.iterdir())]
    ids = [words.index(token) for line in found for token in line]
    assert tokenizer.decode(ids, skip_special_tokens=False) == "".join(f"{text}</s>" for text in texts)
    full = [len(line) == 34 for line in found]
    if packing == "stream":
        assert all(full[:-1])
    else:
        assert [line[-1] for line, is_full in zip(found, full, strict=True) if not is_full] == ["</s>"] * (
            len(full) - sum(full)
        )
        assert sum(line.count("</s>") for line in found) == len(texts)


def test_a_sample_is_a_line_with_spans_taken_out(tmp_path, prepare):
    made = prepare()
    dataset = open_part(tmp_path / "made", "train")
    assert dataset.sample_count == made.train.samples
    direct = open_text_spans(
        [tmp_path / "made" / "train"], PairRequest(32, 8), tmp_path / "made" / "vocab.txt", sentinels=2
    )
    assert read(dataset, [3, 0], epoch=2) == read(direct, [3, 0], epoch=2)
    sample = read(dataset, [0])
    # 34 tokens, of which 5 in 2 spans are taken out: the inputs have 31, the targets 7 and the end.
    assert (sum(sample["attention_mask"][0]), sum(sample["decoder_attention_mask"][0])) == (31, 8)
    assert [token for token in sample["input_ids"][0] if token >= 280] == [281, 280]


def test_a_data_set_says_what_it_is(tmp_path, prepare):
    made = prepare()
    info = data_info(tmp_path / "made")
    assert (info.format, info.sequence_length, info.vocab_size) == ("lines of tokens", 34, 280)
    assert info.spans == {"inputs": 32, "targets": 8, "sentinels": 2}
    assert info.parts["val"].tokens == made.val.tokens
    assert check_data(tmp_path / "made").findings == []


def test_what_is_wrong_with_a_data_set_is_told(tmp_path, prepare):
    made = prepare()
    folder = tmp_path / "made"
    path = folder / "train" / "data_00000.txt"
    lines = path.read_text().splitlines()
    lines[1] += " nothing"
    lines[2] = "nothing " + lines[2].partition(" ")[2]
    path.write_text("".join(f"{line}\n" for line in lines[:-1]))
    findings = [finding.replace(str(folder), "DIR") for finding in check_data(folder).findings]
    assert findings == [
        f"DIR/train/data_00000.txt: must have {findings[0].split()[3]} bytes as it was made, got "
        f"{path.stat().st_size:,}",
        f"DIR/train/data_00000.txt: must have {made.train.samples} rows, as meta.dat says, got {len(lines) - 1}",
    ]
    path.write_text("".join(f"{line}\n" for line in lines))
    assert [finding.replace(str(folder), "DIR") for finding in check_data(folder).findings][1:] == [
        "DIR/train/data_00000.txt:2: tokens must be at most 34 as it was made, got 35, and 1 more rows"
    ]


def test_any_number_of_processes_makes_the_same_files(tmp_path, prepare):
    prepare(processes=1, output=tmp_path / "one")
    prepare(processes=2, output=tmp_path / "two")
    assert content_of(tmp_path / "one") == content_of(tmp_path / "two")
    assert prepare(output=tmp_path / "one").already_prepared


def test_a_tokenizer_may_be_given(tmp_path, prepare):
    prepare(output=tmp_path / "first")
    made = prepare(tokenizer=tmp_path / "first" / "tokenizer.json")
    assert made.tokenizer == str(tmp_path / "made" / "tokenizer.json")
    names = ("vocab.txt", "tokenizer.json", "train/data_00000.txt")
    first, second = content_of(tmp_path / "first"), content_of(tmp_path / "made")
    assert [first[name] for name in names] == [second[name] for name in names]


def test_special_tokens_that_a_tokenizer_is_without_are_the_last_ones(tmp_path, prepare):
    from tokenizers import Tokenizer, models, pre_tokenizers

    path = tmp_path / "words.json"
    made = Tokenizer(models.WordLevel({"the": 0, "cat": 2, "<unk>": 3}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.save(str(path))
    assert prepare(tokenizer=path).unknown_characters > 0
    words = (tmp_path / "made" / "vocab.txt").read_text().splitlines()
    assert words == ["the", "<unused_1>", "cat", "<unk>", "<pad>", "</s>", "<s>"]


def test_tokens_with_spaces_are_an_error(tmp_path, prepare, error_of):
    from tokenizers import Tokenizer, models

    path = tmp_path / "words.json"
    Tokenizer(models.WordLevel({"the": 0, "the cat": 1, "<unk>": 2}, unk_token="<unk>")).save(str(path))
    assert error_of(tmp_path, prepare, tokenizer=path) == (
        "DIR/words.json: tokens must be without spaces, got 'the cat' as token 1\n"
        "hint: tokens stand in lines, with spaces between; take a tokenizer of SentencePiece, or of bytes"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sequence_length": 3}, "--sequence_length: must be from 4 to 1,048,576, got 3"),
        (
            {"tokenizer": "bytes"},
            "--tokenizer: must be a tokenizers JSON file, got bytes\n"
            "hint: left out, a byte-level BPE is trained, which has tokens for every text",
        ),
        (
            {"tokenizer": "tokenizer.json", "vocab_size": 300},
            "--vocab_size: must be left out beside --tokenizer, whose tokens are taken as they are, got 300",
        ),
        ({"vocab_size": 259}, "--vocab_size: must be from 260 to 1,048,576 tokens, got 259"),
        ({"val_fraction": -0.1}, "--val_fraction: must be at least 0 and less than 1, got -0.1"),
    ],
)
def test_arguments_out_of_range_are_errors(tmp_path, prepare, error_of, changes, message):
    assert error_of(tmp_path, prepare, **changes) == message


def test_tokenizers_must_be_installed(tmp_path, prepare, error_of, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert error_of(tmp_path, prepare) == (
        "--vocab_size: needs the package tokenizers, which is not installed\n"
        "hint: pip install 'cstool[tokenizers]', or tokenizers itself"
    )
