"""Initial weights and batches that two implementations can make alike: NumPy only, no cstool, no PyTorch.

Everything is drawn as uniform numbers from PCG64 under a key of its own, so that a tensor depends on its seed, its name
and its shape, not on what else is drawn. `digest` tells whether this machine makes what the recorded curves began with.
"""

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

MASKED_SHARE = 0.1
STEPS = 10


def weights(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, np.ndarray]:
    """Return initial weights by name.

    Matrices (out, in) have a standard deviation of 1 / sqrt(in). Scales of norms are 1 + up to 0.1, biases up to 0.05,
    none of them zero, so that a bias that is dropped or a scale that is ignored shows in the first loss.

    Args:
        shapes: name of the tensor -> its shape; one-dimensional ones are biases, or scales if they end in "weight"
        seed: of the whole set

    Returns:
        name -> array of that shape, float32
    """
    return {name: _weight(name, shape, seed) for name, shape in shapes.items()}


def _weight(name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    uniform = 2.0 * _generator(seed, name).random(shape) - 1.0
    if len(shape) == 2:
        drawn = uniform * math.sqrt(3.0 / shape[1])
    elif name.endswith(".bias"):
        drawn = uniform * 0.05
    else:
        drawn = 1.0 + uniform * 0.1
    return drawn.astype(np.float32)


def text_batches(*, batch_size: int, sequence_length: int, vocab_size: int, seed: int) -> np.ndarray:
    """Return the batches of ten steps in the layout of the vendor's HDF5 files.

    A token has four possible successors, so there is something to learn. The mask ends each sample at a length of its
    own and drops a tenth of what is left; the first sample is masked altogether. Batches differ in unmasked tokens.

    Returns:
        (10, B, 3, S) int32: input_ids, attention_mask (1 where the label counts), labels
    """
    generator = _generator(seed, "text")
    samples = STEPS * batch_size
    tokens = np.empty((samples, sequence_length + 1), np.int64)
    tokens[:, 0] = _integers(generator, vocab_size, (samples,))
    for i in range(sequence_length):
        tokens[:, i + 1] = (5 * tokens[:, i] + 3 + _integers(generator, 4, (samples,))) % vocab_size
    lengths = sequence_length // 2 + _integers(generator, sequence_length // 2 + 1, (samples, 1))
    mask = (np.arange(sequence_length) < lengths) & (generator.random((samples, sequence_length)) >= MASKED_SHARE)
    mask[0] = False
    fields = np.stack([tokens[:, :-1], mask, tokens[:, 1:]], axis=1)
    return fields.reshape(STEPS, batch_size, 3, sequence_length).astype(np.int32)


def case_batches(*, batch_size: int, model: Mapping[str, Any], seed: int) -> np.ndarray:
    """Return `text_batches` for a decoder.

    For mixtures of experts a token counts of the first sample, too: the vendor divides the loss that balances by how
    many do, sample by sample.
    """
    batches = text_batches(
        batch_size=batch_size,
        sequence_length=model["max_position_embeddings"],
        vocab_size=model["vocab_size"],
        seed=seed,
    )
    if "moe" in model:
        batches[0, 0, 1, 0] = 1
    return batches


def image_batches(*, batch_size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the batches of ten steps as raw pixels, in the manner of MNIST.

    Each class has one picture of its own, of which a sample keeps about 70 % of the pixels; the rest is noise.

    Returns:
        pixels (10, B, 784) uint8, labels (10, B) uint8
    """
    generator = _generator(seed, "images")
    pictures = _integers(generator, 256, (10, 784))
    labels = _integers(generator, 10, (STEPS, batch_size))
    noise = _integers(generator, 256, (STEPS, batch_size, 784))
    kept = generator.random((STEPS, batch_size, 784)) < 0.7
    return np.where(kept, pictures[labels], noise).astype(np.uint8), labels.astype(np.uint8)


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Return 16 hexadecimal digits that stand for the names, shapes, types and bytes of the arrays."""
    state = hashlib.blake2b(digest_size=8)
    for name in sorted(arrays):
        array = arrays[name]
        state.update(f"{name} {array.shape} {array.dtype.str}".encode())
        state.update(np.ascontiguousarray(array).tobytes())
    return state.hexdigest()


def _generator(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, *name.encode()])


def _integers(generator: np.random.Generator, bound: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return integers in [0, bound), from `random` alone, whose stream is the least likely to change with NumPy."""
    return (generator.random(shape) * bound).astype(np.int64)


def encoder_batches(
    *,
    batch_size: int,
    sequence_length: int,
    predictions: int,
    vocab_size: int,
    classes: int,
    mask_token: int,
    seed: int,
) -> dict[str, np.ndarray]:
    """Return the batches of ten steps for any encoder, by the name of its input, (10, B, ...).

    Texts are those of `text_batches`, the second half of each from another one where `next_sentence_label` is 1, ids
    from 5 on. They end at a length of their own, and are padded with 1. Of the masked places eight in ten have the
    mask token; `masked_lm_positions` are not in order, and those that do not count are 0.
    """
    generator, shape = _generator(seed, "encoder"), (STEPS, batch_size)
    texts = text_batches(batch_size=batch_size, sequence_length=sequence_length, vocab_size=vocab_size - 5, seed=seed)
    ids = texts[:, :, 0] + 5
    lengths = sequence_length // 2 + _integers(generator, sequence_length // 2 + 1, (*shape, 1))
    places = np.arange(sequence_length)
    is_second = places >= sequence_length // 2
    follows = _integers(generator, 2, (*shape, 1))
    ids = np.where(is_second & (follows == 1), np.roll(ids, 1, axis=1), ids)
    is_real = places < lengths
    ids = np.where(is_real, ids, 1)
    order = np.argsort(generator.random((*shape, sequence_length)) + ~is_real, axis=-1)[..., :predictions]
    counts = np.arange(predictions) < 1 + _integers(generator, predictions, (*shape, 1))
    positions = np.where(counts, order, 0)
    labels = np.where(counts, np.take_along_axis(ids, positions, axis=-1), 0)
    hidden = counts & (generator.random((*shape, predictions)) < 0.8)
    masked = ids.copy()
    for step, sample, place in np.argwhere(hidden):
        masked[step, sample, positions[step, sample, place]] = mask_token
    integers = {
        "input_ids": masked,
        "token_type_ids": np.broadcast_to(is_second, ids.shape),
        "attention_mask": is_real,
        "masked_lm_positions": positions,
        "masked_lm_labels": labels,
        "next_sentence_label": follows,
        "cls_positions": np.sort(positions, axis=-1),
        "cls_labels": ids[..., :predictions] % 2,
        "token_labels": ids % classes,
        "class_labels": ids[..., :1] % classes,
    }
    return {name: array.astype(np.int32) for name, array in integers.items()} | {
        "prediction_mask": counts.astype(np.float32),
        "token_mask": is_real.astype(np.float32),
    }


def pair_batches(
    *, batch_size: int, sequence_length: int, targets: int, vocab_sizes: tuple[int, int], seed: int
) -> dict[str, np.ndarray]:
    """Return the batches of ten steps for an encoder with a decoder, by the name of its input, (10, B, ...).

    A target has every other token of its source, in another vocabulary if there is one. Sources and targets end at
    lengths of their own, and are padded with 0; the decoder begins with 0.
    """
    generator, shape = _generator(seed, "pairs"), (STEPS, batch_size)
    texts = text_batches(
        batch_size=batch_size, sequence_length=sequence_length, vocab_size=vocab_sizes[0] - 2, seed=seed
    )
    sources = texts[:, :, 0] + 2
    labels = sources[..., : 2 * targets : 2] % (vocab_sizes[1] - 2) + 2
    lengths = [size // 2 + _integers(generator, size // 2 + 1, (*shape, 1)) for size in (sequence_length, targets)]
    is_source, is_target = (
        np.arange(size) < length for size, length in zip((sequence_length, targets), lengths, strict=True)
    )
    labels = np.where(is_target, labels, 0)
    started = np.concatenate([np.zeros_like(labels[..., :1]), labels[..., :-1]], axis=-1)
    integers = {
        "input_ids": np.where(is_source, sources, 0),
        "attention_mask": is_source,
        "decoder_input_ids": np.where(is_target, started, 0),
        "decoder_attention_mask": is_target,
        "labels": labels,
    }
    return {name: array.astype(np.int32) for name, array in integers.items()} | {"mask": is_target.astype(np.float32)}


def preference_batches(*, batch_size: int, sequence_length: int, vocab_size: int, seed: int) -> np.ndarray:
    """Return the batches of ten steps in the layout of the vendor's HDF5 files for DPO.

    Texts are those of `text_batches`. The two of a pair share a prompt of a length of their own, whose labels do not
    count, and go on and end each in its own way.

    Returns:
        (10, B, 6, S) int32: input_ids, attention_mask (1 where the label counts), labels of the chosen text, then those
        of the rejected one
    """
    generator, shape = _generator(seed, "preferences"), (STEPS, batch_size, 1)
    keys = {"batch_size": batch_size, "sequence_length": sequence_length, "vocab_size": vocab_size}
    chosen, rejected = (text_batches(**keys, seed=seed + 1000 * text) for text in (1, 2))
    places = np.arange(sequence_length)
    prompts = 2 + _integers(generator, sequence_length // 4, shape)
    rejected[:, :, 0] = np.where(places < prompts, chosen[:, :, 0], rejected[:, :, 0])
    for text in (chosen, rejected):
        lengths = sequence_length // 2 + 2 + _integers(generator, sequence_length // 2 - 1, shape)
        counts = (places >= prompts - 1) & (places < lengths - 1)
        labels = np.roll(text[:, :, 0], -1, axis=-1)
        text[:, :, 0] *= places < lengths
        text[:, :, 1], text[:, :, 2] = counts, labels * counts
    return np.concatenate([chosen, rejected], axis=2)
