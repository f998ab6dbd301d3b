"""Making a data set of masked text."""

import csv
import json
import shutil
import sys
from ast import literal_eval
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.data import MaskedTextPlan, check_data, data_info, open_part, prepare_masked_text, text_work
from cstool.data.masked_samples import Pairs, Runs
from cstool.data.vocabulary import Vocabulary
from cstool.errors import Interrupted
from tests.unit.data.encoder_files import read, write_vocabulary
from tests.unit.data.made import content_of

LINES = ["the cat sat on the mat .", "a dog, and a dog's mat!", 'Café [MASK] sat \\ "on" it']


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
    """Prepare the source with samples of 16 tokens; what is asked for may be changed."""
    asked = {field.name for field in fields(MaskedTextPlan)}

    def call(**changes):
        plan = {"sequence_length": 16, "val_fraction": 0.3}
        plan |= {} if "vocab_file" in changes else {"vocab_size": 120}
        plan |= {name: value for name, value in changes.items() if name in asked}
        others = {name: value for name, value in changes.items() if name not in asked}
        arguments = {"sources": [source], "output": tmp_path / "made", "plan": MaskedTextPlan(**plan)}
        return prepare_masked_text(**arguments | others)

    return call


def rows(folder):
    """The rows of a part."""
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="") as file:
            yield from csv.DictReader(file)


def tokens_of(folder) -> list[list[str]]:
    return [literal_eval(row["tokens"]) for row in rows(folder)]


def words_of(source, *, lower=False) -> str:
    """The characters of a text that are no spaces, without accents."""
    text = "".join(path.read_text() for path in sorted(source.iterdir())).replace("é", "e")
    return "".join((text.lower() if lower else text).split())


@pytest.mark.parametrize("packing", ["stream", "documents"])
@pytest.mark.parametrize("lower", [False, True])
def test_the_text_is_in_the_samples(tmp_path, source, prepare, packing, lower):
    made = prepare(packing=packing, do_lower=lower, val_fraction=0)
    found = tokens_of(tmp_path / "made" / "train")
    assert all(len(tokens) <= 16 and (tokens[0], tokens[-1]) == ("[CLS]", "[SEP]") for tokens in found)
    pieces = [token for tokens in found for token in tokens if token not in ("[CLS]", "[SEP]")]
    assert "".join(token.removeprefix("##") for token in pieces) == words_of(source, lower=lower)
    assert (made.train.samples, made.train.tokens, made.val.samples) == (len(found), len(pieces), 0)
    full = [len(tokens) == 16 for tokens in found]
    if packing == "stream":
        assert sum(full) > 0.8 * len(full)
        assert any("[SEP]" in tokens[1:-1] for tokens in found)
    else:
        assert not any("[SEP]" in tokens[1:-1] for tokens in found)


def test_pairs_are_of_text_that_follows_or_of_another_document(tmp_path, prepare):
    prepare(has_pairs=True, sequence_length=24)
    found = list(rows(tmp_path / "made" / "train"))
    documents = [*tokens_of_documents(tmp_path)]
    for row in found:
        tokens, segments = literal_eval(row["tokens"]), json.loads(row["segment_ids"])
        middle = tokens.index("[SEP]") + 1
        assert segments == [0] * middle + [1] * (len(tokens) - middle)
        assert (tokens[0], tokens[-1], len(tokens) <= 24) == ("[CLS]", "[SEP]", True)
        first, second = " ".join(tokens[1 : middle - 1]), " ".join(tokens[middle:-1])
        assert any(first in document for document in documents)
        assert any(second in document for document in documents)
        if row["is_random_next"] == "0":
            assert any(f"{first} {second}" in document for document in documents)
    share = np.mean([int(row["is_random_next"]) for row in found])
    assert 0.3 < share < 0.7


def tokens_of_documents(tmp_path):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tmp_path / "made" / "tokenizer.json"))
    for path in sorted((tmp_path / "source").iterdir()):
        yield " ".join(tokenizer.encode(path.read_text()).tokens)


LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=6)


@given(lengths=LENGTHS, length=st.integers(8, 20), packing=st.sampled_from(["stream", "documents"]))
def test_runs_have_every_token_once_in_order(lengths, length, packing):
    runs = Runs(np.array(lengths, np.int64), room=length - 2, packing=packing, separator=1)
    samples = [runs.sample(number) for number in range(runs.count)]
    spans = [span for sample in samples for span in sample.first]
    assert [token for span in spans for token in range(*span)] == list(range(sum(lengths)))
    assert runs.tokens == sum(lengths)
    ends = set(np.cumsum(lengths).tolist())
    for sample in samples:
        # [CLS], and a [SEP] after each span
        assert 3 <= 1 + sum(stop - start + 1 for start, stop in sample.first) <= length
        assert all(stop in ends for _, stop in sample.first[:-1])
        assert packing == "stream" or len(sample.first) == 1


@given(lengths=LENGTHS, length=st.integers(8, 20), seed=st.integers(0, 3))
def test_pairs_are_within_documents_and_cover_them(lengths, length, seed):
    pairs = Pairs(np.array(lengths, np.int64), sequence_length=length, seed=seed, part="train")
    edges = np.cumsum([0, *lengths])

    def document(span):
        assert span.start < span.stop
        found = int(np.searchsorted(edges, span.start, side="right")) - 1
        assert span.stop <= edges[found + 1]
        return found

    covered, texts = set(), 0
    for number in range(pairs.count):
        sample = pairs.sample(number)
        [first] = sample.first
        assert 3 + first.stop - first.start + sample.second.stop - sample.second.start <= length
        documents = document(first), document(sample.second)
        if not sample.is_random:
            assert sample.second.start == first.stop
        elif sum(size > 0 for size in lengths) > 1:
            assert documents[0] != documents[1]
        covered |= set(range(*first)) | (set() if sample.is_random else set(range(*sample.second)))
        texts += sum(stop - start for start, stop in (first, sample.second))
    assert pairs.tokens == texts
    # Of a document one token at most is left over.
    for start, size in zip(edges, lengths, strict=False):
        assert len(covered & set(range(start, start + size))) >= size - 1


def test_the_files_are_those_of_any_number_of_processes_and_of_any_run(tmp_path, prepare, monkeypatch):
    monkeypatch.setattr(text_work, "FILE_SAMPLES", 5)
    made = []
    for number, processes in enumerate((1, 2, 1)):
        output = tmp_path / f"made{number}"
        prepare(output=output, processes=processes, has_pairs=True)
        made.append(content_of(output))
    assert made[0] == made[1] == made[2]
    listed = (tmp_path / "made0" / "train" / "meta.dat").read_text().split()
    assert listed[:4] == ["data_00000.csv", "5", "data_00001.csv", "5"]


def test_the_vocabulary_has_special_tokens_and_characters_first(tmp_path, source, prepare):
    made = prepare()
    words = Vocabulary(tmp_path / "made" / "vocab.txt").tokens
    assert words[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    characters = sorted(set(words_of(source)))
    assert words[5 : 5 + 2 * len(characters)] == [*characters, *(f"##{character}" for character in characters)]
    assert (made.vocab_size, "the" in words) == (len(words), True)
    assert prepare(vocab_size=60, output=tmp_path / "small").vocab_size == 60


def test_a_vocabulary_can_be_given(tmp_path, prepare):
    words = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", ".")
    made = prepare(vocab_file=write_vocabulary(tmp_path, words), do_lower=True)
    assert (tmp_path / "made" / "vocab.txt").read_bytes() == (tmp_path / "vocab.txt").read_bytes()
    found = {word for tokens in tokens_of(tmp_path / "made" / "train") for word in tokens}
    assert found == {*words} - {"[PAD]", "[MASK]"}
    assert made.unknown_characters > 0


def test_a_data_set_is_read_looked_at_and_checked(tmp_path, prepare):
    made = prepare(has_pairs=True)
    dataset = open_part(tmp_path / "made", "train")
    assert dataset.sample_count == made.train.samples
    sample = read(dataset, list(range(dataset.sample_count)))
    assert all(sum(mask) >= 1 for mask in sample["mask"])
    assert 1 not in {label for labels in sample["labels"] for label in labels}
    dataset.close()
    info = data_info(tmp_path / "made")
    assert (info.format, info.packing, info.sequence_length, info.vocab_size) == (
        "CSV, masked as it is read", "pairs", 16, made.vocab_size
    )  # fmt: skip
    assert info.parts["train"].samples == made.train.samples
    assert info.first_text.startswith("[CLS] ")
    check = check_data(tmp_path / "made")
    assert (check.findings, check.samples, check.files) == ([], made.train.samples + made.val.samples, 2)


def test_it_is_kept_and_gone_on_with(tmp_path, prepare, monkeypatch):
    first = prepare()
    again = prepare()
    assert again == replace(first, duration_s=again.duration_s, already_prepared=True)
    whole = content_of(tmp_path / "made")
    shutil.rmtree(tmp_path / "made")
    monkeypatch.setattr(text_work, "FILE_SAMPLES", 4)
    write, written = text_work.do_each, []

    def stop(task, jobs, processes, done):
        if jobs and hasattr(jobs[0], "part") and hasattr(jobs[0], "first") and hasattr(jobs[0], "count"):
            written.append(len(jobs))
            write(task, jobs[:2], processes, done)
            raise KeyboardInterrupt
        write(task, jobs, processes, done)

    monkeypatch.setattr(text_work, "do_each", stop)
    with pytest.raises(Interrupted):
        prepare()
    monkeypatch.setattr(text_work, "do_each", write)
    made = prepare()
    assert (made.continued.files, made.continued.of_files) == (2, written[0])
    assert content_of(tmp_path / "made")["vocab.txt"] == whole["vocab.txt"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sequence_length": 7}, "--sequence_length: must be from 8 to 1,048,576, got 7"),
        ({"val_fraction": 1.0}, "--val_fraction: must be at least 0 and less than 1, got 1.0"),
        (
            {"vocab_file": "vocab.txt", "vocab_size": 300},
            "--vocab_size: must be left out beside --vocab_file, whose tokens are taken as they are, got 300",
        ),
        ({"vocab_size": 31}, "--vocab_size: must be from 32 to 1,048,576 tokens, got 31"),
        ({"processes": 0}, "--processes: must be at least 1, got 0"),
        (
            {"has_pairs": True, "packing": "documents"},
            "--packing: must be left out beside --nsp, got documents\nhint: the texts of a pair never cross documents",
        ),
    ],
)
def test_arguments_out_of_range_are_errors(tmp_path, prepare, error_of, changes, message):
    assert error_of(tmp_path, prepare, **changes) == message


def test_a_vocabulary_needs_its_special_tokens(tmp_path, prepare, error_of):
    vocabulary = write_vocabulary(tmp_path, ["[UNK]", "the", "[SEP]"])
    assert error_of(tmp_path, prepare, vocab_file=vocabulary) == (
        "DIR/vocab.txt: must have the token [CLS], got 3 others\n"
        "hint: it is the vocab.txt of a BERT model, or of a data set of `cstool data prepare mlm`"
    )


def test_other_text_is_another_data_set(tmp_path, prepare, error_of):
    prepare()
    assert error_of(tmp_path, prepare, do_lower=True) == (
        "DIR/made: must not hold another data set, got one made from other text or with other arguments\n"
        "hint: add --overwrite to replace it, or give another --output"
    )
    assert not prepare(do_lower=True, overwrite=True).already_prepared


def test_tokenizers_must_be_installed(tmp_path, prepare, error_of, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert error_of(tmp_path, prepare) == (
        "--vocab_size: cutting text into tokens needs the package tokenizers, which is not installed\n"
        "hint: pip install 'cstool[tokenizers]', or tokenizers itself"
    )


def test_what_is_wrong_with_a_data_set_is_told(tmp_path, prepare):
    prepare()
    folder = tmp_path / "made"
    path = folder / "train" / "data_00000.csv"
    before = path.read_bytes()
    path.write_bytes(before.replace(b"'cat'", b"'bat'", 1))
    [found] = check_data(folder).findings
    assert found.replace(str(folder), "DIR").startswith("DIR/train/data_00000.csv:")
    assert found.endswith(": tokens must be in the vocabulary, 'bat' is not")
    path.write_bytes(before.replace(b"['[CLS]'", b"['[CLS]', 'the'"))
    lines = [line.replace(str(folder), "DIR") for line in check_data(folder).findings]
    assert lines[0].startswith("DIR/train/data_00000.csv: must have ")
    assert ": tokens must be at most 16 as it was made, got 17, and " in lines[1]
    path.write_bytes(before[: before.rindex(b"\r\n", 0, -2) + 2])
    lines = [line.replace(str(folder), "DIR") for line in check_data(folder).findings]
    assert " rows, as meta.dat says, got " in lines[1]
    path.unlink()
    assert check_data(folder).findings[0] == f"{path}: must be there, found nothing"
