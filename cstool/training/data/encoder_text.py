"""Input of an encoder: tokens of one text or two, with the special tokens around them and masks in place.

Source: Devlin et al., "BERT: Pre-training of deep bidirectional transformers for language understanding", 2019, section
3; Liu, "Fine-tune BERT for extractive summarization", 2019, section 3.1, for texts to summarize.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cstool.foundation.errors import DataError
from cstool.training.data.sentences import cut_to
from cstool.training.data.tokenizer import BYTES, FileTokenizer
from cstool.training.data.vocabulary import CLS, MASK, SEP, SPECIAL_TOKENS, Vocabulary
from cstool.training.data.wordpiece import residue_tokenizer, wordpiece_tokenizer

_MASKS = (MASK, "<mask>")
_BEGINS, _ENDS = (CLS, "<s>", "<cls>"), (SEP, "</s>", "<eos>")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


def _has_residues(path: Path) -> bool:
    """Whether a vocabulary is of proteins, as ESM-2 has it; one that cannot be read is not."""
    try:
        return b"<cls>" in path.read_bytes().split()
    except OSError:
        return False


@dataclass(frozen=True)
class EncoderText:
    """A text, or two, in tokens.

    Args:
        tokens: special ones included
        segments: 0 for tokens of the first text, 1 for tokens of the second; for sentences, 0 and 1 by turns
        masked: places of tokens that are to be filled in
        words: of the words of the first text, as spaces tell them apart, the words and the places of their first tokens
        sentences: of a text to summarize, its sentences and the places of their first tokens
    """

    tokens: Sequence[int]
    segments: Sequence[int]
    masked: Sequence[int] = ()
    words: Sequence[tuple[str, int]] = ()
    sentences: Sequence[tuple[str, int]] = ()


class EncoderTokenizer:
    """Turns texts into the input of an encoder, and tokens into their names.

    Args:
        path: of a vocabulary, a token on each line, or of a tokenizers JSON file (.json)
        do_lower: whether texts, and tokens of the vocabulary, are taken in lower case; a JSON file says it itself
        by_template: whether the template of a JSON file says what begins and ends a text, perhaps nothing

    Raises:
        DataError: the file is missing, is none of the two, or has no tokens that begin and end a text; or the package
            `tokenizers` is not installed
    """

    def __init__(self, path: Path, *, do_lower: bool = False, by_template: bool = False) -> None:
        if str(path) == BYTES:
            raise DataError(
                "--tokenizer: must be the vocab.txt of an encoder or a tokenizers JSON file, got bytes",
                "no byte is a mask, or begins a text",
            )
        self.name = str(path)
        self._whole: FileTokenizer | None = None
        self._loaded: Any
        if path.suffix == ".json":
            file = FileTokenizer(path)
            self._loaded, self._whole = file.loaded, file if by_template else None
        elif _has_residues(path):
            self._loaded = residue_tokenizer(Vocabulary(path, unknown="<unk>"))
        else:
            words = Vocabulary(path, do_lower=do_lower)
            # Special tokens are written as they are, also where the rest is in lower case.
            pairs = zip(words.written, words.tokens, strict=True)
            names = [written if written in SPECIAL_TOKENS else token for written, token in pairs]
            self._loaded = wordpiece_tokenizer(self.name, names, do_lower)
        ids: dict[str, int] = self._loaded.get_vocab(with_added_tokens=True)
        self.vocab_size = max(ids.values()) + 1
        if self._whole is not None:
            self._begin = self._end = -1
            self.special_ids: Sequence[int] = self._whole.by_template([""])[0]
        else:
            self._begin, self._end = (self._special(ids, names) for names in (_BEGINS, _ENDS))
            self.special_ids = (self._begin, self._end)
        """of the tokens that begin and end a text"""
        self.mask_token = next((name for name in _MASKS if name in ids), None)
        """as texts spell it out; None where there is none"""
        if self.mask_token is not None and not any(
            found.content == self.mask_token for found in self._loaded.get_added_tokens_decoder().values()
        ):
            self._loaded.add_special_tokens([self.mask_token])
        self._mask = ids.get(self.mask_token or "", -1)
        # RoBERTa's two ends between texts are of its time; its models have no segments.
        self._between = 2 if "<s>" in ids and CLS not in ids else 1

    def _special(self, ids: dict[str, int], names: Sequence[str]) -> int:
        if (found := next((ids[name] for name in names if name in ids), None)) is None:
            raise DataError(
                f"{self.name}: must have a token that begins a text and one that ends it, such as {CLS} and {SEP}, "
                f"got none of {', '.join(names)}",
                "--tokenizer names the vocabulary or the tokenizer of the training data",
            )
        return found

    def token(self, number: int) -> str:
        """Return a token as its vocabulary has it, its spaces included."""
        return self._loaded.id_to_token(number) or f"<{number}>"

    def text_of(self, number: int) -> str:
        """Return the text of a token."""
        name = self.token(number)
        return name if name.startswith("##") else (self._loaded.decode([number], skip_special_tokens=False) or name)

    def encode(
        self, text: str, pair: str | None = None, *, special_tokens: bool = True, most: int | None = None
    ) -> EncoderText:
        """Encode one text, or two.

        Args:
            special_tokens: whether a text begins and ends with the tokens for that
            most: tokens; longer texts are cut, the longer of two first. None for any number
        """
        if self._whole is not None and special_tokens:
            return EncoderText(*self._whole.by_template([text] if pair is None else [text, pair], most))
        first = self._loaded.encode(text, add_special_tokens=False)
        second = None if pair is None else self._loaded.encode(pair, add_special_tokens=False)
        parts = [list(found.ids) for found in (first, second) if found is not None]
        begin, end = ([self._begin], [self._end]) if special_tokens else ([], [])
        between = end * self._between
        extra = len(begin) + len(end) + (len(between) if len(parts) > 1 else 0)
        if most is not None:
            cut_to(parts, max(0, most - extra))
        tokens = [*begin, *parts[0], *(end if len(parts) == 1 else between)]
        segments = [0] * len(tokens)
        if len(parts) > 1:
            tokens += [*parts[1], *end]
            # Where the second text begins with another end, that is a part of it.
            segments += [1] * (len(tokens) - len(segments))
        starts = [start for start, _ in first.offsets[: len(parts[0])]]
        words = []
        for word in re.finditer(r"\S+", text):
            # The offsets of some tokens have the space before a word.
            ends = (stop for _, stop in first.offsets[: len(starts)])
            place = next((k for k, stop in enumerate(ends) if stop > word.start()), None)
            if place is not None and starts[place] < word.end():
                words.append((word[0], place + len(begin)))
        return EncoderText(tokens, segments, [k for k, token in enumerate(tokens) if token == self._mask], words)

    def encode_sentences(self, text: str, *, most: int | None = None) -> EncoderText:
        """Encode a text to summarize: special tokens around each sentence, segments 0 and 1 by turns.

        Args:
            most: tokens; sentences that do not fit as a whole are left out. None for any number
        """
        tokens: list[int] = []
        segments: list[int] = []
        sentences = []
        for number, sentence in enumerate(filter(None, map(str.strip, _SENTENCE.split(text)))):
            ids = self._loaded.encode(sentence, add_special_tokens=False).ids
            if most is not None and len(tokens) + len(ids) + 2 > most:
                break
            sentences.append((sentence, len(tokens)))
            tokens += [self._begin, *ids, self._end]
            segments += [number % 2] * (len(ids) + 2)
        return EncoderText(tokens, segments, sentences=sentences)
