"""Random numbers are a function of what they are for."""

import numpy as np
import pytest

from cstool.foundation.random_keys import generator, key_of, philox4x32, philox_block

KNOWN_ANSWERS = {
    "zeros": ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    "ones": ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    "pi": ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
}
"""Source: kat_vectors of Random123, philox4x32 with 10 rounds"""


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize("case", KNOWN_ANSWERS)
def test_the_known_answers_of_random123(case: str) -> None:
    counter, key, block = map(words, KNOWN_ANSWERS[case])
    assert philox4x32(np.array([counter], np.uint32), (key[0], key[1])).tolist() == [block]
    assert list(philox_block((counter[0], counter[1], counter[2], counter[3]), (key[0], key[1]))) == block


def test_many_counters_give_what_each_gives_alone() -> None:
    counters = np.array([words(counter) for counter, _, _ in KNOWN_ANSWERS.values()], np.uint32)
    alone = [philox4x32(counter[None], (3, 5))[0].tolist() for counter in counters]
    assert philox4x32(counters, (3, 5)).tolist() == alone


def test_the_key_of_a_purpose_never_changes_and_another_seed_or_name_has_another() -> None:
    """Checkpoints of older versions rely on it."""
    assert key_of(1, "embedding_layer.dropout") == (2059672098, 3225381085)
    assert len({key_of(*purpose) for purpose in ((1, "a"), (2, "a"), (1, "b"))}) == 3


def test_a_generator_is_numpys_philox_under_the_key_of_its_purpose() -> None:
    low, high = key_of(7, "shuffle/0")
    numpys = np.random.Generator(np.random.Philox(key=high * 2**32 + low))
    expected = numpys.permutation(20).tolist()
    assert generator(7, "shuffle/0").permutation(20).tolist() == expected
