"""Text to files of tokens."""

import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.training.data import load_tokenizer, tokenizing
from cstool.training.data.sources import find_files, read_bytes
from cstool.training.data.token_stream import ByteStream, ShardStream, holds_tokens, write_shard
from cstool.training.data.tokenizing import Shard, Tokenize, cut_documents, group_pieces, text_of, train_tokenizer
from tests.unit.training.data.made import save_words, write_files

TEXT = "To be, or not to be: that is the question.\n\nWhether 'tis nobler in the mind to suffer\n" * 4


@pytest.fixture
def small(monkeypatch):
    """Cut documents after 16 bytes already, and make files of two pieces."""
    monkeypatch.setattr(tokenizing, "PIECE_BYTES", 16)
    monkeypatch.setattr(tokenizing, "SHARD_BYTES", 32)


@pytest.fixture
def bpe(tmp_path):
    """The path of a tokenizer trained on `TEXT`."""
    path = tmp_path / "tokenizer.json"
    train_tokenizer(path, iter([TEXT]), 300)
    return path


@pytest.fixture
def found(tmp_path):
    """Write texts and find them: `found("a", "b")`."""

    def write(*texts):
        write_files(tmp_path / "texts", **{f"{number}": text for number, text in enumerate(texts)})
        return find_files([tmp_path / "texts"])

    return write


def pieces_of(file):
    return [text_of(file, piece) for piece in cut_documents([file])]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one two\nthree four five", ["one two\nthree", " four five"]),
        ("abcdefghi\njklmn\nopqrstuvw", ["abcdefghi\njklmn\n", "opqrstuvw"]),
        ("abcdefg\n\n\nopqrs tuvw", ["abcdefg\n\n\nopqrs", " tuvw"]),
        ("abcdefghi jkl mnopqrstuvw", ["abcdefghi jkl", " mnopqrstuvw"]),
        ("abcdefghijklmnopqrstuvw", ["abcdefghijklmnop", "qrstuvw"]),
        ("ééééééééé", ["éééééééé", "é"]),
        ("a世世世世世世世", ["a世世世世世", "世世"]),
    ],
    ids=["begin", "line", "empty_lines", "space", "nothing", "characters", "between_characters"],
)
def test_a_long_document_is_cut_where_it_matters_least(found, text, expected):
    assert pieces_of(found(text)[0]) == expected


@pytest.mark.usefixtures("small")
def test_the_pieces_are_the_document_grouped_in_order_and_no_tokens_change(found, bpe):
    text = "to be or\nnot to\nbe that is\nthe question\n"
    file, lines, *_ = files = found(TEXT, text, "short", TEXT)
    assert "".join(pieces_of(file)) == TEXT
    assert [piece.is_last for piece in cut_documents([file])].index(True) == len(pieces_of(file)) - 1
    pieces = list(cut_documents(files))
    groups = list(group_pieces(iter(pieces)))
    assert [piece for group in groups for piece in group] == pieces
    assert all(sum(p.stop - p.start for p in group) >= 32 for group in groups[:-1])
    tokenizer = load_tokenizer(bpe)
    assert len(pieces_of(lines)) > 1
    assert [token for piece in pieces_of(lines) for token in tokenizer.encode(piece)] == tokenizer.encode(text)


@pytest.mark.usefixtures("small")
def test_a_stream_of_files_of_tokens_is_the_tokens_of_the_documents(tmp_path, found, bpe):
    files = found(TEXT, "short", "to be", TEXT[5:])
    tokenizer = load_tokenizer(bpe)
    groups = enumerate(group_pieces(cut_documents(files)))
    shards = [Shard(tmp_path / f"{number}.npy", "train", pieces) for number, pieces in groups]
    for shard in shards:
        Tokenize({"train": files}, bpe, allow_unknown=False)(shard)
        assert holds_tokens(shard.path, shard.first, shard.documents)
    stream = ShardStream([shard.path for shard in shards], len(files))
    expected, lengths = [], []
    for file in files:
        tokens = [token for text in pieces_of(file) for token in tokenizer.encode(text)]
        expected += [*tokens, tokenizer.end_of_text]
        lengths.append(len(tokens) + 1)
    assert stream.document_tokens.tolist() == lengths
    assert stream.read(0, len(expected)).tolist() == expected
    for start in range(0, len(expected), 7):
        assert stream.read(start, start + 5).tolist() == expected[start : start + 5]
    assert len(shards) > 3


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6), data=st.data())
def test_a_stream_of_bytes_is_the_files_with_a_zero_after_each(tmp_path_factory, sizes, data):
    folder = tmp_path_factory.mktemp("bytes")
    write_files(folder, **{f"{number}": bytes([65 + number]) * size for number, size in enumerate(sizes)})
    files = find_files([folder])
    whole = b"".join(read_bytes(file, 0, file.size_bytes) + b"\0" for file in files)
    stream = ByteStream(files)
    assert stream.document_tokens.tolist() == [size + 1 for size in sizes]
    start = data.draw(st.integers(0, len(whole) - 1))
    stop = data.draw(st.integers(start, len(whole)))
    assert stream.read(start, stop).tobytes() == whole[start:stop]


def test_text_that_is_not_utf8_is_named_with_its_offset(tmp_path, found, bpe, error_of):
    files = found(b"fine", b"abc\xffdef")
    shard = Shard(tmp_path / "0.npy", "train", next(group_pieces(cut_documents(files))))
    assert error_of(Tokenize({"train": files}, bpe, allow_unknown=False), shard) == (
        "DIR/texts/1: must be UTF-8 text for a tokenizer, got byte 0xff at offset 3\n"
        "hint: convert the file (iconv -t UTF-8) or leave it out; --tokenizer bytes takes any file"
    )
    assert not shard.path.exists()


def test_a_character_without_a_token_is_named_with_its_offset_in_bytes_or_counted(tmp_path, found, error_of):
    letters = save_words(tmp_path / "letters.json", "[UNK]", **{"a": 0, "b": 1, "[UNK]": 2})
    files = found("a b", "a 世 é")
    shard = Shard(tmp_path / "0.npy", "train", next(group_pieces(cut_documents(files))))
    assert error_of(Tokenize({"train": files}, letters, allow_unknown=False), shard) == (
        "DIR/texts/1: the tokenizer must have a token for '世' at offset 2; it has none\n"
        "hint: --allow_unknown goes on without such characters, and counts them; a tokenizer with all bytes has none"
    )
    Tokenize({"train": files}, letters, allow_unknown=True)(shard)
    stream = ShardStream([shard.path], 2)
    assert (stream.unknown_characters, stream.read(0, 5).tolist()) == (2, [0, 1, 0, 2, 2])


def test_a_trained_tokenizer_has_all_bytes_and_an_end_of_text_and_is_the_same_again(tmp_path, bpe):
    tokenizer = load_tokenizer(bpe)
    assert (tokenizer.vocab_size, tokenizer.end_of_text) == (300, 0)
    assert tokenizer.decode(tokenizer.encode("\0 世界")) == "\0 世界"
    assert len(tokenizer.encode(TEXT)) < len(TEXT) / 1.5
    assert json.loads(bpe.read_text())["model"]["type"] == "BPE"
    train_tokenizer(tmp_path / "again", iter([TEXT]), 300)
    assert (tmp_path / "again").read_bytes() == bpe.read_bytes()


def test_a_file_of_tokens_that_is_not_whole_is_told(tmp_path, error_of):
    path = tmp_path / "0.npy"
    write_shard(path, 3, [2, 1], 0, np.array([7, 8, 9], np.int32))
    assert (holds_tokens(path, 3, 2), holds_tokens(path, 0, 2)) == (True, False)
    os.truncate(path, path.stat().st_size - 1)
    assert not holds_tokens(path, 3, 2)
    message = "DIR/0.npy: must hold tokens, got a damaged file\nhint: remove it, and run it again"
    assert error_of(ShardStream, [path], 5) == message
