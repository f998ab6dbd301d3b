"""A model with adapters, folded, and compared with itself unfolded: the logits of both, before the file has its name.

Both add the same numbers in another order, and folded weights are rounded once. A sum of n terms has an error of about
sqrt(n) roundings. Those of all products add up as their squares do; `SLACK` is for the norms and functions between
them, which may make an error larger. A GPT-2 small was at 2.2e-6 of its largest logit and a small GPT with large
adapters at 9.5e-6, their bounds are 730 and 33 times that. Without its adapters a small GPT differed by 6e-3 after four
steps of their training, 21 times its bound.

Source: Higham, Mary, "A new approach to probabilistic rounding error analysis", 2019, theorem 2.4.
"""

import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cstool.foundation.errors import CheckpointError, InferenceError
from cstool.foundation.progress import Silent
from cstool.inference.model import InferenceModel
from cstool.inference.source import walk_from
from cstool.model.ir import Graph, OpKind
from cstool.model.params import DecoderClassifierParams, DecoderParams, EncoderDecoderParams, Params
from cstool.model.params.sections.tuning import is_magnitude
from cstool.training.kernels.cached_attention import News
from cstool.training.machine.cluster import INTERPRETER
from cstool.training.store import CheckpointReader, merge_adapters, open_checkpoint
from cstool.training.store.pending_file import rename_to_free_name
from cstool.training.store.saved_state import Progress, no_progress
from cstool.training.verbs.trained import params_of

TOKENS = 32
"""most tokens of the random prompt"""
SLACK = 32.0
SEED = 1
_PRODUCTS = (OpKind.LINEAR, OpKind.EXPERT_LINEAR, OpKind.ATTENTION, OpKind.SOFTMAX_LOSS)

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Comparison:
    """Logits of a model before and after its adapters were folded in.

    Args:
        tokens: of the random prompt
        difference: the largest, as a share of the largest logit
        bound: the most that rounding explains
    """

    tokens: int
    difference: float
    bound: float


def rounding_bound(graph: Graph) -> float:
    """The most that logits of a model may differ by rounding in float32, as a share of the largest."""
    products = [op for op in graph.ops if op.kind in _PRODUCTS]
    terms = (graph.tensors[op.inputs[0]].shape[-1] for op in products)
    return float(SLACK * np.finfo(np.float32).eps * sum(terms) ** 0.5)


def random_prompt(model: DecoderParams | EncoderDecoderParams) -> list[int]:
    """Tokens of a prompt, the same for each model of a vocabulary and a length."""
    if isinstance(model, DecoderParams):
        sizes, lengths = [model.vocab_size], [model.max_position_embeddings]
    else:
        sizes = [*model.vocab_sizes]
        lengths = [each or TOKENS for each in (model.src_max_position_embeddings, model.tgt_max_position_embeddings)]
    found: list[int] = np.random.default_rng(SEED).integers(0, min(sizes), min(TOKENS, *lengths)).tolist()
    return found


def logits_of(params: Params, path: Path, tokens: Sequence[int], *, folds: bool) -> tuple[Array, float]:
    """Logits after each token of a prompt, (tokens, classes) float32, and the bound on their error by rounding.

    Args:
        params: of the checkpoint
        path: of the checkpoint
        tokens: of the prompt; an encoder-decoder reads them on both sides
        folds: whether adapters are folded in; else they stand beside their layers
    """
    params = replace(params, precision=params.precision.model_copy(update={"host": "float32"}))
    opened = InferenceModel(params, checkpoint_path=path, executor=INTERPRETER, folds=folds, progress=Silent())
    with opened as model:
        walk = model.walk(1, len(tokens))
        if isinstance(model.params.model, EncoderDecoderParams):
            walk = walk_from(model, [tokens], 1, len(tokens))
        news = News.of([0], [len(tokens)], [0])
        inputs = {walk.ids: np.array(tokens, np.int32)}
        if isinstance(model.params.model, DecoderClassifierParams):
            # Each token is the last one of a sample.
            inputs["last_position"] = np.zeros(len(tokens), np.int32)
        logits = walk.run(inputs, news, np.arange(len(tokens)))
        return logits, rounding_bound(model.graph)


def compare(source: Path, folded: Path) -> Comparison | str:
    """Compare a checkpoint of adapters with the one that they were folded into; or return the reason against it."""
    with open_checkpoint(source) as state:
        names = state.tensor_names()
        if not isinstance(state, CheckpointReader):
            return "MemoryX answers from its own folder alone; cstool checkpoint copy makes a checkpoint of it"
        if not state.values().get("__metadata__"):
            return "the checkpoint does not say of which model it is"
    if any(map(is_magnitude, names)):
        return "adapters with magnitudes (DoRA) are computed folded in alone"
    params = params_of(source, (), {})
    model = params.answering.model
    if not isinstance(model, DecoderParams | EncoderDecoderParams):
        return f"a model that generates no text, {model.name}, has none to compare"
    tokens = random_prompt(model)
    before, bound = logits_of(params, source, tokens, folds=False)
    after, _ = logits_of(params_of(folded, (), {}), folded, tokens, folds=True)
    largest = float(np.abs(before).max())
    difference = float(np.abs(after - before).max()) / (largest or 1.0)
    return Comparison(len(tokens), difference, bound)


def merge(
    source: Path, destination: Path, progress: Progress = no_progress, *, compares: bool = True
) -> tuple[int, Comparison | str | None]:
    """Write a checkpoint with its adapters folded in; it gets its name once its logits are the same as before.

    Args:
        compares: whether they are compared; the model is in memory twice then, one after the other

    Returns:
        number of adapters; and the result of `compare`, None without one

    Raises:
        CheckpointError: there are no adapters, or one of the files cannot be read or written
        InferenceError: logits differ by more than rounding explains; then nothing is left of the new checkpoint
    """
    if not compares:
        return merge_adapters(source, destination, progress), None
    if os.path.lexists(destination):
        raise CheckpointError(f"Checkpoint at '{destination}' already exists", "delete it or choose another name")
    hidden = destination.with_name(f".{destination.name}.{secrets.token_hex(4)}.mdl")
    try:
        count = merge_adapters(source, hidden, progress)
        found = compare(source, hidden)
        if isinstance(found, Comparison) and not found.difference <= found.bound:
            raise InferenceError(
                f"{destination}: logits must be those of before the merge within {found.bound:.1e} of the largest, "
                f"they differ by {found.difference:.1e}",
                "nothing was written; --no_compare writes it all the same",
            )
        rename_to_free_name(hidden, destination)
    except CheckpointError as error:
        raise CheckpointError(error.message.replace(str(hidden), str(destination)), error.hint) from error
    except FileExistsError:
        raise CheckpointError(
            f"Checkpoint at '{destination}' already exists", "delete it or choose another name"
        ) from None
    finally:
        with suppress(OSError):
            hidden.unlink(missing_ok=True)
    return count, found
