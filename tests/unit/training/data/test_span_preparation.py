"""Making a data set for span corruption."""

import pytest

from cstool.model.params import TextSpansParams
from cstool.training.data import SpanTextPlan, check_data, data_info, open_part, prepare_span_text
from cstool.training.data.text_spans import TextSpansDataset
from tests.unit.training.data.encoder_files import opened_by, read
from tests.unit.training.data.made import content_of, preparer, refusals, save_words, write_words


@pytest.fixture
def prepare(tmp_path, folder):
    """Prepare words with inputs of 32 tokens; what is asked for may be changed."""
    source = write_words(tmp_path / "source", "<unk>")
    usual = {"sequence_length": 32, "val_fraction": 0.3, "vocab_size": 280}
    return preparer(prepare_span_text, SpanTextPlan, source, folder, **usual)


def lines_of(folder) -> list[list[str]]:
    return [line.split() for path in sorted(folder.glob("*.txt")) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("packing", ["stream", "documents"])
def test_the_text_is_in_the_lines(tmp_path, folder, prepare, packing):
    from tokenizers import Tokenizer

    made = prepare(packing=packing, val_fraction=0)
    found = lines_of(folder / "train")
    assert (made.train.samples, made.train.tokens) == (len(found), sum(map(len, found)))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    words = (folder / "vocab.txt").read_text().splitlines()
    assert words == [tokenizer.id_to_token(number) for number in range(280)]
    assert words[:4] == ["<pad>", "</s>", "<unk>", "<s>"]
    texts = [path.read_text() for path in sorted((tmp_path / "source").iterdir())]
    ids = [words.index(token) for line in found for token in line]
    assert tokenizer.decode(ids, skip_special_tokens=False) == "".join(f"{text}</s>" for text in texts)
    full = [len(line) == 34 for line in found]
    if packing == "stream":
        assert all(full[:-1])
    else:
        assert {line[-1] for line, is_full in zip(found, full, strict=True) if not is_full} == {"</s>"}
        assert sum(line.count("</s>") for line in found) == len(texts)


def test_a_sample_is_a_line_with_spans_taken_out_and_the_data_set_says_what_it_is(folder, prepare):
    made = prepare()
    dataset = open_part(folder, "train")
    assert dataset.sample_count == made.train.samples
    keys = {"src_max_sequence_length": 32, "tgt_max_sequence_length": 8, "src_vocab_file": folder / "vocab.txt"}
    direct = opened_by(TextSpansDataset, TextSpansParams, [folder / "train"], **keys, extra_ids=2)
    assert read(dataset, [3, 0], epoch=2) == read(direct, [3, 0], epoch=2)
    sample = read(dataset, [0])
    # 34 tokens, of which 5 in 2 spans are taken out: the inputs have 31, the targets 7 and the end.
    assert (sum(sample["attention_mask"][0]), sum(sample["decoder_attention_mask"][0])) == (31, 8)
    assert [token for token in sample["input_ids"][0] if token >= 280] == [281, 280]
    info = data_info(folder)
    assert (info.format, info.sequence_length, info.vocab_size) == ("lines of tokens", 34, 280)
    assert info.spans == {"inputs": 32, "targets": 8, "sentinels": 2}
    assert info.parts["val"].tokens == made.val.tokens
    assert check_data(folder).findings == []
    # What is wrong with it is told.
    path = folder / "train" / "data_00000.txt"
    size, lines = path.stat().st_size, path.read_text().splitlines()
    lines[1] += " nothing"
    lines[2] = "nothing " + lines[2].partition(" ")[2]
    path.write_text("".join(f"{line}\n" for line in lines[:-1]))
    assert check_data(folder).findings == [
        f"{path}: must have {size:,} bytes as it was made, got {path.stat().st_size:,}",
        f"{path}: must have {made.train.samples} rows, as meta.dat says, got {len(lines) - 1}",
    ]
    path.write_text("".join(f"{line}\n" for line in lines))
    rule = "tokens must be at most 34 as it was made, got 35, and 1 more rows"
    assert check_data(folder).findings[1:] == [f"{path}:2: {rule}"]


@pytest.mark.usefixtures("quick_processes")
def test_any_number_of_processes_makes_the_same_files_and_a_tokenizer_may_be_given(tmp_path, folder, prepare):
    prepare(processes=1, output=tmp_path / "first")
    prepare(processes=2, output=tmp_path / "two")
    assert content_of(tmp_path / "first") == content_of(tmp_path / "two")
    assert prepare(output=tmp_path / "first").already_prepared
    made = prepare(tokenizer=tmp_path / "first" / "tokenizer.json", vocab_size=None)
    assert made.tokenizer == str(folder / "tokenizer.json")
    first, second = content_of(tmp_path / "first"), content_of(folder)
    for name in ("vocab.txt", "tokenizer.json", "train/data_00000.txt"):
        assert first[name] == second[name]


def test_special_tokens_that_a_tokenizer_lacks_are_the_last_and_none_has_spaces(tmp_path, folder, prepare, error_of):
    path = save_words(tmp_path / "words.json", "<unk>", **{"the": 0, "cat": 2, "<unk>": 3})
    assert prepare(tokenizer=path, vocab_size=None).unknown_characters > 0
    words = (folder / "vocab.txt").read_text().splitlines()
    assert words == ["the", "<unused_1>", "cat", "<unk>", "<pad>", "</s>", "<s>"]
    save_words(path, "<unk>", **{"the": 0, "the cat": 1, "<unk>": 2})
    assert error_of(prepare, tokenizer=path, vocab_size=None, output=tmp_path / "other") == (
        "DIR/words.json: tokens must be without spaces, got 'the cat' as token 1\n"
        "hint: tokens stand in lines, with spaces between; take a tokenizer of SentencePiece, or of bytes"
    )


REFUSED = refusals("""\
{sequence_length: 3} => --sequence_length: must be from 4 to 1,048,576, got 3
{tokenizer: bytes, vocab_size: null} => --tokenizer: must be a tokenizers JSON file, got bytes
    hint: left out, a byte-level BPE is trained, which has tokens for every text
{tokenizer: tokenizer.json, vocab_size: 300} => --vocab_size: must be left out beside --tokenizer, whose tokens are
        taken as they are, got 300
{vocab_size: 259} => --vocab_size: must be from 260 to 1,048,576 tokens, got 259
""")


@pytest.mark.parametrize(("asked", "message"), REFUSED)
def test_arguments_out_of_range_are_errors(prepare, error_of, asked, message):
    assert error_of(prepare, **asked) == message
