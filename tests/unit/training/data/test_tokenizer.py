"""Text to tokens and back."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Loaded

from cstool.training.data import ByteTokenizer, FileTokenizer, load_tokenizer, tokenizer_of
from tests.unit.training.data.made import RECORD, write_record

LETTERS = {"a": 0, "b": 1, "[UNK]": 2}


def byte_level(*special):
    """Train a byte-level BPE on a few words."""
    loaded = Loaded(models.BPE())
    loaded.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    loaded.decoder = decoders.ByteLevel()
    more = {"initial_alphabet": sorted(pre_tokenizers.ByteLevel.alphabet()), "show_progress": False}
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=list(special), **more)
    loaded.train_from_iterator(["hello world, hello"], trainer)
    return loaded


def words(model):
    loaded = Loaded(model)
    loaded.pre_tokenizer = pre_tokenizers.Whitespace()
    return loaded


@pytest.fixture
def save(tmp_path):
    def to_file(loaded):
        loaded.save(str(tmp_path / "tokenizer.json"))
        return load_tokenizer(tmp_path / "tokenizer.json")

    return to_file


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_bytes_are_those_of_utf8(text):
    tokens = ByteTokenizer().encode(text)
    assert tokens == list(text.encode())
    assert ByteTokenizer().decode(tokens) == text


def test_bytes_that_are_no_text_come_out_as_replacements_and_half_a_character_has_no_tokens(save, error_of):
    bytes_ = load_tokenizer("bytes")
    assert (bytes_.name, bytes_.vocab_size, bytes_.end_of_text) == ("bytes", 256, 0)
    assert bytes_.decode([104, 0xC3, 300, -1, 105]) == "h\ufffd\ufffd\ufffdi"
    assert bytes_.encode("a\udcff") == [97, 255]  # as it was typed on the command line
    for tokenizer, half in ((ByteTokenizer(), "\ud800"), (save(byte_level()), "\udcff")):
        assert error_of(tokenizer.encode, f"ab{half}") == (
            f"the text must be made of whole characters, got half of one, {half!a}, at 2"
        )


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_byte_level_tokenizer_gives_back_any_text(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("file") / "tokenizer.json"
    byte_level("<|endoftext|>").save(str(path))
    loaded = FileTokenizer(path)
    tokens = loaded.encode(text)
    assert all(type(token) is int and 0 <= token < loaded.vocab_size for token in tokens)
    assert loaded.decode(tokens) == text


def test_the_file_is_what_the_package_reads_without_what_it_would_cut_off_or_pad(save):
    loaded, text = byte_level("<|endoftext|>"), "hello <|endoftext|> wörld"
    saved, expected = save(loaded), loaded.encode(text).ids
    assert (saved.encode(text), saved.vocab_size) == (expected, loaded.get_vocab_size())
    loaded.enable_truncation(2)
    loaded.enable_padding(length=100)
    assert save(loaded).encode(text) == expected


def test_tokens_know_the_characters_that_they_stand_for(save, error_of):
    assert ByteTokenizer().encode_spans("aé") == ([97, 195, 169], [(0, 1), (1, 2), (1, 2)])
    tokenizer = save(byte_level("<end>"))
    tokens, spans = tokenizer.encode_spans("hello é<end>")
    assert tokens == tokenizer.encode("hello é<end>")
    assert ["hello é<end>"[slice(*span)] for span in spans] == ["hello", " ", "é", "é", "<end>"]
    with_unknown = save(words(models.WordLevel(LETTERS, unk_token="[UNK]")))
    assert with_unknown.encode_spans("a b") == ([0, 1], [(0, 1), (2, 3)])
    rule = "must have a token for 'c', character 2 of the text; it has none"
    hint = "hint: leave the character out, or take a tokenizer that has all bytes"
    assert error_of(with_unknown.encode_spans, "a c") == f"DIR/tokenizer.json: {rule}\n{hint}"
    rule = r"the text must be made of whole characters, got half of one, '\ud800', at 1"
    for each in (tokenizer, ByteTokenizer()):
        assert error_of(each.encode_spans, "a\ud800") == rule


def test_incomplete_characters_and_ids_beyond_the_vocabulary_come_out_as_replacements(save):
    saved = save(byte_level())
    tokens = saved.encode("ö")
    assert (len(tokens), saved.end_of_text) == (2, None)
    assert saved.decode([tokens[0], 10**6, *tokens, -1]) == "\ufffd\ufffdö\ufffd"


@pytest.mark.parametrize("end", ["<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>"])
def test_the_token_between_documents_is_found_by_its_name(save, end):
    saved = save(byte_level("<other>", end))
    assert (saved.end_of_text, saved.decode([1])) == (1, end)


@pytest.mark.parametrize(
    ("model", "unknown"),
    [
        (models.WordLevel(LETTERS, unk_token="[UNK]"), [2]),
        (models.WordPiece(LETTERS, unk_token="[UNK]"), [2]),
        (models.Unigram([("a", -1.0), ("b", -1.0), ("[UNK]", 0.0)], unk_id=2), [2]),
        (models.BPE(LETTERS, [], unk_token="[UNK]"), [2]),
        (models.BPE({"a": 0, "b": 1}, []), []),
    ],
    ids=["word_level", "word_piece", "unigram", "bpe", "bpe_that_drops"],
)
def test_a_character_without_a_token_is_named(save, error_of, model, unknown):
    saved = save(words(model))
    assert saved.encode("a b") == [0, 1]
    assert saved.encode_all("a 世 b é") == ([0, *unknown, 1, *unknown], [2, 6])
    assert error_of(saved.encode, "a 世 b é") == (
        "DIR/tokenizer.json: must have a token for '世', character 2 of the text; it has none\n"
        "hint: leave the character out, or take a tokenizer that has all bytes"
    )


def test_what_else_a_tokenizer_may_do(save):
    # A vocabulary with gaps is as large as its largest id.
    assert save(words(models.WordLevel({"a": 0, "b": 7}, unk_token="[UNK]"))).vocab_size == 8
    # Bytes to fall back to are tokens like others.
    vocabulary = {f"<0x{value:02X}>": value for value in range(256)}
    saved = save(words(models.BPE({**vocabulary, "a": 256}, [], byte_fallback=True)))
    assert saved.encode("a 世") == [256, *"世".encode()]
    # A normalizer that joins characters loses none.
    loaded = words(models.BPE({"é": 0}, []))
    loaded.normalizer = normalizers.NFC()
    assert save(loaded).encode("e\u0301") == [0]
    # Special tokens that are written out are those tokens.
    loaded = byte_level()
    loaded.add_special_tokens([AddedToken("<|user|>")])
    saved = save(loaded)
    assert saved.encode("<|user|>") == [saved.vocab_size - 1]


def test_the_end_of_a_text_is_that_of_the_configuration_beside_the_file(save, tmp_path, error_of):
    loaded = byte_level()
    loaded.add_special_tokens([AddedToken("<|endoftext|>"), AddedToken("<|im_end|>")])
    first = loaded.get_vocab_size() - 2
    assert save(loaded).end_of_text == first
    config = tmp_path / "tokenizer_config.json"
    for said, end in (
        ("<|im_end|>", first + 1),
        ({"content": "<|im_end|>"}, first + 1),
        ("<eot>", first),
        (None, first),
    ):
        config.write_text(json.dumps({"eos_token": said}))
        assert save(loaded).end_of_text == end
    # Of a checkpoint's own tokenizer it has the name of the checkpoint before it.
    config.rename(tmp_path / "a.tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    loaded.save(str(tmp_path / "a.tokenizer.json"))
    assert load_tokenizer(tmp_path / "a.tokenizer.json").end_of_text == first + 1
    config.write_text("[]")
    message = "DIR/tokenizer_config.json: must be a JSON object, got something else"
    assert error_of(load_tokenizer, tmp_path / "tokenizer.json") == message


SAVED = "hint: it is what `tokenizers` saves, tokenizer.json of a Hugging Face model for example"
EITHER, JSON = "must be bytes or a tokenizers JSON file", "must be a tokenizers JSON file"
EXPECTING = "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
ONE = "must be a tokenizer with at least one token"


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda path: None, f"{EITHER}, found nothing there"),
        (Path.mkdir, f"{EITHER}, got a folder\nhint: give the tokenizer.json in it"),
        (lambda path: path.write_bytes(b"\xff\xfe"), f"{JSON}, got something that is not text"),
        (lambda path: path.write_text("{"), f"{JSON}, got: {EXPECTING}\n{SAVED}"),
        (lambda path: Loaded(models.BPE()).save(str(path)), f"{ONE}, got an empty vocabulary"),
    ],
    ids=["missing", "folder", "no_text", "no_json", "empty"],
)
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path, error_of, make, expected):
    make(tmp_path / "t.json")
    assert error_of(load_tokenizer, tmp_path / "t.json") == f"DIR/t.json: {expected}"


def test_json_of_something_else_or_half_of_it_is_refused(tmp_path, error_of):
    content = byte_level().to_str()
    for text in ("{}", content[: len(content) // 2]):
        (tmp_path / "t.json").write_text(text)
        message = error_of(load_tokenizer, tmp_path / "t.json")
        assert (message.partition(", got: ")[0], message.partition("\n")[2]) == (f"DIR/t.json: {JSON}", SAVED)


def test_a_data_set_knows_its_tokenizer_and_a_folder_beside_its_parts_is_not_of_it(tmp_path):
    (tmp_path / "train").mkdir()
    write_record(tmp_path, {name: RECORD[name] for name in RECORD if name != "tokenizer"})
    found = [tokenizer_of(tmp_path / name) for name in ("", "train", "other")]
    assert [loaded and loaded.name for loaded in found] == ["bytes", "bytes", None]
    write_record(tmp_path, RECORD)
    byte_level().save(str(tmp_path / "tokenizer.json"))
    for folder in (tmp_path, tmp_path / "train"):
        assert tokenizer_of(folder).name == str(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("content", [None, "[]", "{", '{"parts": 1}'])
def test_other_folders_have_no_tokenizer(tmp_path, content):
    if content is not None:
        write_record(tmp_path, content)
    (tmp_path / "train").mkdir()
    assert [tokenizer_of(tmp_path), tokenizer_of(tmp_path / "train")] == [None, None]
