"""Counter-based random numbers: the key comes from (seed, stable name), the counter from the index of the number.

The caller names the use of its random numbers, and gets the same ones on every system, lane and
restart. The NumPy code here is the definition; `cstool.training.kernels.random` has the fast form of the same.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11 (Philox4x32-10).
"""

import hashlib

import numpy as np

MULTIPLIER_0, MULTIPLIER_1 = 0xD2511F53, 0xCD9E8D57
WEYL_0, WEYL_1 = 0x9E3779B9, 0xBB67AE85
ROUNDS = 10


def key_of(seed: int, name: str) -> tuple[int, int]:
    """Return the two 32-bit key words of a purpose, for example (1, "embedding_layer.dropout")."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")


def philox4x32(counter: np.ndarray, key: tuple[int, int]) -> np.ndarray:
    """Return the Philox4x32-10 block of each counter.

    Args:
        counter: (n, 4) uint32
        key: two 32-bit words, as from `key_of`

    Returns:
        (n, 4) uint32
    """
    c0, c1, c2, c3 = (counter[:, i].astype(np.uint64) for i in range(4))
    k0, k1 = key
    mask, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(ROUNDS):
        p0, p1 = c0 * np.uint64(MULTIPLIER_0), c2 * np.uint64(MULTIPLIER_1)
        c0, c1, c2, c3 = (p1 >> shift) ^ c1 ^ np.uint64(k0), p1 & mask, (p0 >> shift) ^ c3 ^ np.uint64(k1), p0 & mask
        k0, k1 = (k0 + WEYL_0) & 0xFFFFFFFF, (k1 + WEYL_1) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


def philox_block(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return the block of one counter, all 32-bit words; see `philox4x32`, which takes longer for a few."""
    (c0, c1, c2, c3), (k0, k1), mask = counter, key, 0xFFFFFFFF
    for _ in range(ROUNDS):
        p0, p1 = c0 * MULTIPLIER_0, c2 * MULTIPLIER_1
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & mask, (p0 >> 32) ^ c3 ^ k1, p0 & mask
        k0, k1 = (k0 + WEYL_0) & mask, (k1 + WEYL_1) & mask
    return c0, c1, c2, c3


def generator(seed: int, name: str) -> np.random.Generator:
    """Return a NumPy generator for draws that are made in one go, such as the permutation of an epoch."""
    k0, k1 = key_of(seed, name)
    return np.random.Generator(np.random.Philox(key=(k1 << 32) | k0))
