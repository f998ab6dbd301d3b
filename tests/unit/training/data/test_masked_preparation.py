"""Making a data set of masked text."""

import csv
import json
import shutil
from ast import literal_eval
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.foundation.errors import Interrupted
from cstool.training.data import MaskedTextPlan, check_data, data_info, open_part, prepare_masked_text, text_work
from cstool.training.data.masked_samples import Pairs, Runs
from cstool.training.data.samples import SampleFile
from cstool.training.data.vocabulary import Vocabulary
from tests.unit.training.data.encoder_files import read, write_vocabulary
from tests.unit.training.data.made import ANOTHER, content_of, preparer, refusals, write_words


@pytest.fixture
def source(tmp_path):
    return write_words(tmp_path / "source", "[MASK]")


@pytest.fixture
def prepare(source, folder):
    """Prepare the source with samples of 16 tokens; what is asked for may be changed."""
    usual = {"sequence_length": 16, "val_fraction": 0.3, "vocab_size": 120}
    return preparer(prepare_masked_text, MaskedTextPlan, source, folder, **usual)


def rows(folder):
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="") as file:
            yield from csv.DictReader(file)


def tokens_of(folder) -> list[list[str]]:
    return [literal_eval(row["tokens"]) for row in rows(folder)]


def words_of(source, *, lower=False) -> str:
    """The characters of a text that are no spaces, without accents."""
    text = "".join(path.read_text() for path in sorted(source.iterdir())).replace("é", "e")
    return "".join((text.lower() if lower else text).split())


@pytest.mark.parametrize(("packing", "lower"), [("stream", False), ("stream", True), ("documents", False)])
def test_the_text_is_in_the_samples(folder, source, prepare, packing, lower):
    made = prepare(packing=packing, do_lower=lower, val_fraction=0)
    found = tokens_of(folder / "train")
    assert all(len(tokens) <= 16 and (tokens[0], tokens[-1]) == ("[CLS]", "[SEP]") for tokens in found)
    pieces = [token for tokens in found for token in tokens if token not in ("[CLS]", "[SEP]")]
    assert "".join(token.removeprefix("##") for token in pieces) == words_of(source, lower=lower)
    assert (made.train.samples, made.train.tokens, made.val.samples) == (len(found), len(pieces), 0)
    assert any("[SEP]" in tokens[1:-1] for tokens in found) == (packing == "stream")
    assert packing == "documents" or sum(len(tokens) == 16 for tokens in found) > 0.8 * len(found)


def test_pairs_are_of_text_that_follows_or_of_another_document(folder, source, prepare):
    from tokenizers import Tokenizer

    prepare(has_pairs=True, sequence_length=24)
    found = list(rows(folder / "train"))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    documents = [" ".join(tokenizer.encode(path.read_text()).tokens) for path in sorted(source.iterdir())]
    for row in found:
        tokens, segments = literal_eval(row["tokens"]), json.loads(row["segment_ids"])
        middle = tokens.index("[SEP]") + 1
        assert segments == [0] * middle + [1] * (len(tokens) - middle)
        assert (tokens[0], tokens[-1], len(tokens) <= 24) == ("[CLS]", "[SEP]", True)
        first, second = " ".join(tokens[1 : middle - 1]), " ".join(tokens[middle:-1])
        for text in (first, second) if row["is_random_next"] == "1" else (f"{first} {second}",):
            assert any(text in document for document in documents)
    assert 0.3 < np.mean([int(row["is_random_next"]) for row in found]) < 0.7


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


@pytest.mark.usefixtures("quick_processes")
def test_the_files_are_those_of_any_number_of_processes_and_of_any_run(tmp_path, prepare, monkeypatch):
    monkeypatch.setattr(text_work, "FILE_SAMPLES", 5)
    for number, processes in enumerate((1, 2, 1)):
        prepare(output=tmp_path / f"made{number}", processes=processes, has_pairs=True)
    made = [content_of(tmp_path / f"made{number}") for number in range(3)]
    assert made[0] == made[1] == made[2]
    assert made[0]["train/meta.dat"].split()[:4] == [b"data_00000.csv", b"5", b"data_00001.csv", b"5"]


def test_the_vocabulary_has_special_tokens_and_characters_first(tmp_path, folder, source, prepare):
    made = prepare()
    words = Vocabulary(folder / "vocab.txt").tokens
    characters = sorted(set(words_of(source)))
    begin = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters, *(f"##{c}" for c in characters)]
    assert words[: len(begin)] == begin
    assert (made.vocab_size, "the" in words) == (len(words), True)
    assert prepare(vocab_size=60, output=tmp_path / "small").vocab_size == 60


def test_a_vocabulary_can_be_given(tmp_path, folder, prepare):
    words = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", ".")
    made = prepare(vocab_file=write_vocabulary(tmp_path, words), vocab_size=None, do_lower=True)
    assert (folder / "vocab.txt").read_bytes() == (tmp_path / "vocab.txt").read_bytes()
    assert {word for tokens in tokens_of(folder / "train") for word in tokens} == {*words} - {"[PAD]", "[MASK]"}
    assert made.unknown_characters > 0


def test_a_data_set_is_read_looked_at_and_checked(folder, prepare):
    made = prepare(has_pairs=True)
    dataset = open_part(folder, "train")
    assert dataset.sample_count == made.train.samples
    sample = read(dataset, list(range(dataset.sample_count)))
    assert all(sum(mask) >= 1 for mask in sample["mask"])
    assert 1 not in {label for labels in sample["labels"] for label in labels}
    dataset.close()
    info, check = data_info(folder), check_data(folder)
    told = (info.format, info.packing, info.sequence_length, info.vocab_size)
    assert told == ("CSV, masked as it is read", "pairs", 16, made.vocab_size)
    assert info.parts["train"].samples == made.train.samples
    assert info.first_text.startswith("[CLS] ")
    assert (check.findings, check.samples, check.files) == ([], made.train.samples + made.val.samples, 2)


def test_it_is_kept_and_gone_on_with_and_is_not_that_of_other_text(folder, prepare, error_of, monkeypatch):
    first = prepare()
    again = prepare()
    assert again == replace(first, duration_s=again.duration_s, already_prepared=True)
    assert error_of(prepare, do_lower=True) == f"DIR/made: {ANOTHER}"
    whole = content_of(folder)
    shutil.rmtree(folder)
    monkeypatch.setattr(text_work, "FILE_SAMPLES", 4)
    write, written = text_work.do_each, []

    def stop(task, jobs, processes, done):
        if jobs and isinstance(jobs[0], SampleFile):
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
    assert content_of(folder)["vocab.txt"] == whole["vocab.txt"]


REFUSED = refusals("""\
{sequence_length: 7} => --sequence_length: must be from 8 to 1,048,576, got 7
{val_fraction: 1.0} => --val_fraction: must be at least 0 and less than 1, got 1.0
{val_fraction: -0.1} => --val_fraction: must be at least 0 and less than 1, got -0.1
{vocab_file: vocab.txt, vocab_size: 300} => --vocab_size: must be left out beside --vocab_file, whose tokens are taken
        as they are, got 300
{vocab_file: vocab.txt, vocab_size: null} => vocab.txt: must have the token [CLS], got 3 others
    hint: it is the vocab.txt of a BERT model, or of a data set of `cstool data prepare mlm`
{vocab_size: 31} => --vocab_size: must be from 32 to 1,048,576 tokens, got 31
{processes: 0} => --processes: must be at least 1, got 0
{has_pairs: true, packing: documents} => --packing: must be left out beside --nsp, got documents
    hint: the texts of a pair never cross documents
""")


@pytest.mark.parametrize(("asked", "message"), REFUSED)
def test_arguments_out_of_range_are_errors(tmp_path, prepare, error_of, monkeypatch, asked, message):
    write_vocabulary(tmp_path, ["[UNK]", "the", "[SEP]"])
    monkeypatch.chdir(tmp_path)
    if "vocab_file" in asked:
        asked = asked | {"vocab_file": Path(asked["vocab_file"])}
    assert error_of(prepare, **asked) == message


def test_what_is_wrong_with_a_data_set_is_told(folder, prepare):
    prepare()
    path = folder / "train" / "data_00000.csv"
    before = path.read_bytes()
    path.write_bytes(before.replace(b"'cat'", b"'bat'", 1))
    [found] = check_data(folder).findings
    assert found.startswith(f"{path}:")
    assert found.endswith(": tokens must be in the vocabulary, 'bat' is not")
    path.write_bytes(before.replace(b"['[CLS]'", b"['[CLS]', 'the'"))
    size, tokens = check_data(folder).findings[:2]
    assert size.startswith(f"{path}: must have ")
    assert ": tokens must be at most 16 as it was made, got 17, and " in tokens
    path.write_bytes(before[: before.rindex(b"\r\n", 0, -2) + 2])
    assert " rows, as meta.dat says, got " in check_data(folder).findings[1]
    path.unlink()
    assert check_data(folder).findings[0] == f"{path}: must be there, found nothing"
