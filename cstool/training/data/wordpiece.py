"""WordPiece by the package `tokenizers`: of a vocabulary, or trained.

Texts are cleaned, spaces put around Chinese characters and between punctuation, and accents taken off, before words
are cut into the longest tokens that the vocabulary has.

Source: Devlin et al., "BERT: Pre-training of deep bidirectional transformers for language understanding", 2019;
cleaning of text: Cerebras Model Zoo 2.10.0, data_preparation/nlp/tokenizers/Tokenization.py.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cstool.foundation.errors import DataError
from cstool.training.data.vocabulary import CONTINUES, SPECIAL_TOKENS, UNKNOWN, Vocabulary

LONGEST_WORD = 200
"""characters of a word that is cut into tokens; a longer one is unknown"""
LEAST_VOCAB = 32
"""that can be trained, special tokens included"""
MOST_CHARACTERS = 1000
"""that have tokens, the most frequent ones; others are unknown"""


class WordPiece:
    """Cuts texts into the numbers of tokens.

    Args:
        vocabulary: with the unknown token

    Raises:
        DataError: the package `tokenizers` is not installed.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._loaded = wordpiece_tokenizer(str(vocabulary.path), vocabulary.tokens, vocabulary.do_lower)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of texts, special ones not added."""
        return [list(found.ids) for found in self._loaded.encode_batch_fast(list(texts), add_special_tokens=False)]


def train_wordpiece(texts: Callable[[], Iterable[str]], vocab_size: int, *, do_lower: bool) -> str:
    """Train a WordPiece vocabulary, and return it as the content of a tokenizers JSON file, the same for the same text.

    Args:
        texts: texts() goes through the text to train on, piece by piece, always the same
        vocab_size: tokens that it has at most, special ones included
        do_lower: take texts in lower case

    Raises:
        DataError: the package `tokenizers` is not installed.
    """
    tokenizer = wordpiece_tokenizer("--vocab_size", SPECIAL_TOKENS, do_lower)
    from tokenizers import trainers

    counts: Counter[str] = Counter()
    for text in texts():
        counts.update(tokenizer.normalizer.normalize_str(text))
    most = min(MOST_CHARACTERS, (vocab_size - len(SPECIAL_TOKENS)) // 2)
    found = sorted((character for character in counts if not character.isspace()), key=lambda c: (-counts[c], c))
    alphabet = sorted(found[:most])
    # Characters within words have no order of their own in the package: it would be another one each time.
    first = [*SPECIAL_TOKENS, *alphabet, *(f"{CONTINUES}{character}" for character in alphabet)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=first,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        continuing_subword_prefix=CONTINUES,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(), trainer)
    ids: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    # Anew, since a text that spells [MASK] out is no mask.
    made = wordpiece_tokenizer("--vocab_size", sorted(ids, key=ids.__getitem__), do_lower)
    return f"{made.to_str(pretty=True)}\n"


def wordpiece_file(vocabulary: Vocabulary) -> str:
    """Return a vocabulary as the content of a tokenizers JSON file, or raise DataError without `tokenizers`."""
    tokenizer = wordpiece_tokenizer(str(vocabulary.path), vocabulary.tokens, vocabulary.do_lower)
    return f"{tokenizer.to_str(pretty=True)}\n"


def residue_tokenizer(vocabulary: Vocabulary) -> Any:
    """Return the package's tokenizer of proteins, each letter a token, or raise DataError without the package."""
    wordpiece_tokenizer(str(vocabulary.path), (UNKNOWN,), False)
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    ids = {token: number for number, token in enumerate(vocabulary.tokens)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    letters = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), letters])
    return tokenizer


def wordpiece_tokenizer(where: str, tokens: Sequence[str], do_lower: bool) -> Any:
    """Return the package's tokenizer of a vocabulary, or raise DataError without the package.

    Args:
        where: the flag or file that needs it, for messages
        tokens: in the order of their numbers
        do_lower: take texts in lower case
    """
    try:
        from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
    except ImportError:
        raise DataError(
            f"{where}: cutting text into tokens needs the package tokenizers, which is not installed",
            "pip install 'cstool[tokenizers]', or tokenizers itself",
        ) from None
    ids = {token: number for number, token in enumerate(tokens)}
    unknown = UNKNOWN.lower() if do_lower and UNKNOWN not in ids else UNKNOWN
    model = models.WordPiece(ids, unk_token=unknown, max_input_chars_per_word=LONGEST_WORD)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=do_lower, strip_accents=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix=CONTINUES)
    return tokenizer
