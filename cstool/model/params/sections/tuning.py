"""The part of a model that a run trains: weights frozen by name, and low-rank adapters beside frozen layers.

Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021, section 4.1: beside a frozen W of
(outputs, inputs) the product B A, A of (rank, inputs) and B of (outputs, rank), times alpha / rank. Kalajdzievski, "A
rank stabilization scaling factor for fine-tuning with LoRA", 2023: alpha / sqrt(rank). Classes of modules are the
vendor's, release 2.10.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from cstool.foundation.errors import ParamsError
from cstool.foundation.yaml_lines.section import rule_error

TARGETS = "targets"
"""key of the layers in `--lora`"""
ALL = "all"
"""stands for all linear layers but the output layer"""
EMBEDDING, HEAD = "embedding", "head"
"""stand for the tables of tokens, and for the output layer"""
FIRST = "first:"
"""prefix of a choice of layers by number: the first N layers, and the embeddings before them"""
FROZEN_EXAMPLE = "such as first:16 for embeddings and 16 layers, or '*ffn*,*embedding*' for names of weights"
MOST_RANK = 2**20
LORA_WEIGHTS = (".lora_A", ".lora_B")
"""ends of the names of the weights of adapters beside linear layers"""
EMBEDDING_WEIGHTS = (".lora_embedding_A", ".lora_embedding_B")
"""ends of the names of the weights of adapters beside tables"""
MAGNITUDE = ".lora_magnitude_vector"
"""end of the name of the lengths of the rows of a sum (DoRA)"""
MODULES: Mapping[str, str] = MappingProxyType(
    {
        "EmbeddingLayer": "embedding_layer.",
        "TransformerDecoder": "transformer_decoder.",
        "TransformerEncoder": "transformer_encoder.",
        "TransformerDecoderLayer": "layers.",
        "TransformerEncoderLayer": "layers.",
        "MultiheadAttention": "self_attn.",
        "FeedForwardNetwork": "ffn.",
        "Linear": "",
        "Embedding": "",
    }
)
"""the vendor's classes of modules, outer ones first -> parts of the names of layers in them"""
KINDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {ALL: ("",), EMBEDDING: (EMBEDDING,), HEAD: (HEAD,), "Linear": ("", HEAD), "Embedding": (EMBEDDING,)}
)
"""words for all layers of some kinds, the vendor's classes of layers among them -> their own words; linear layers
inside have none"""
LEAVES = ("Linear", "Embedding")
"""the vendor's classes of layers"""


HEADS = ("score", "classifier")
"""output layers that tell classes of texts, of decoders and encoders: a new task begins with random ones, so they are
trained beside adapters, as by the package PEFT"""


def is_of_head(name: str) -> bool:
    """Say whether a weight is of an output layer that tells classes of texts."""
    return name.rpartition(".")[0] in HEADS


def is_of_adapter(name: str) -> bool:
    """Say whether a weight, or the tensor of one, is of an adapter."""
    return name.endswith((*LORA_WEIGHTS, *EMBEDDING_WEIGHTS, MAGNITUDE))


def is_magnitude(name: str) -> bool:
    """Say whether a tensor has the magnitudes of an adapter."""
    return name.endswith(MAGNITUDE)


def has_adapters(names: Iterable[str]) -> bool:
    """Say whether any weight, or any tensor of one, is of an adapter."""
    return any(map(is_of_adapter, names))


@dataclass(frozen=True)
class Adapters:
    """Adapters beside linear layers: y = x W^T + scale dropout(x) A^T B^T.

    Args:
        rank: rows of A, columns of B
        layers: short names, ends of names, patterns of whole names with `*` for anything, or `all`
        alpha: scale x rank; None for the rank, so that the scale is 1
        dropout: rate, of the input of A in training
        is_stabilized: whether alpha is scale x the root of the rank
    """

    rank: int
    layers: tuple[str, ...]
    alpha: float | None = None
    dropout: float = 0.0
    is_stabilized: bool = False

    @property
    def scale(self) -> float:
        """Factor of the product."""
        divisor = math.sqrt(self.rank) if self.is_stabilized else self.rank
        return (self.rank if self.alpha is None else self.alpha) / divisor


@dataclass(frozen=True)
class Tuning:
    """The changes of a model before it is trained. Without any, all weights are trained.

    Args:
        frozen: choices of weights that stay as they are, see `parse_frozen`
        adapters: beside a layer the first one that names it; with any, all weights but theirs and a head's (`HEADS`)
            stay as they are
        where: the flag or key that asks for it
    """

    frozen: tuple[str, ...] = ()
    adapters: tuple[Adapters, ...] = ()
    where: str = field(default="", compare=False)

    def __bool__(self) -> bool:
        return bool(self.frozen or self.adapters)


def parse_frozen(text: str, where: str = "--frozen") -> tuple[str, ...]:
    """Return choices of weights: patterns of their names, `*` for anything, and `first:N`.

    >>> parse_frozen("first:16, *ffn*")
    ('first:16', '*ffn*')

    Raises:
        ParamsError: one is empty, or `first:` is followed by no number of layers
    """
    found = tuple(part.strip() for part in text.split(","))
    for part in found:
        if not part or part.startswith(FIRST) and not _is_count(part.removeprefix(FIRST)):
            raise _error(f"{where}: must be patterns of weights, or first:N, got {text}", FROZEN_EXAMPLE)
    return found


def parse_adapters(text: str, where: str = "--adapters", layers: str = "layers") -> Adapters:
    """Return the adapters of `rank=16,layers=q,v`, perhaps with `alpha=`, `dropout=` or `rslora=true`.

    >>> parse_adapters("rank=16,alpha=32,layers=q,v")
    Adapters(rank=16, layers=('q', 'v'), alpha=32.0, dropout=0.0, is_stabilized=False)

    Args:
        layers: key of the layers

    Raises:
        ParamsError: it is nothing of the kind
    """
    example = f"such as {where} rank=16,{layers}=q,v"
    rest = ("alpha", "dropout", "rslora")
    found: dict[str, list[str]] = {}
    key = ""
    for part in text.split(","):
        name, sign, value = part.strip().partition("=")
        if sign:
            key = name.strip()
            if key in found or key not in ("rank", layers, *rest):
                found.clear()
                break
        found.setdefault(key, []).append(value.strip() if sign else name)
    alone = {name: ",".join(values) for name, values in found.items() if name != layers}
    if not {"rank", layers} <= found.keys() or not all(found[layers]):
        rule = f"must have rank and {layers}, once each, and at most {', '.join(rest)} beside them"
        raise _error(f"{where}: {rule}, got {text}", example)
    if not _is_count(alone["rank"]) or int(alone["rank"]) > MOST_RANK:
        raise _error(f"{where}: rank must be a whole number, at least 1, got {alone['rank']}", example)
    if (alpha := _number(alone.get("alpha"))) is not None and not 0 < alpha < math.inf:
        raise _error(f"{where}: alpha must be a number above 0, got {alone['alpha']}", example)
    if (dropout := _number(alone.get("dropout", "0"))) is None or not 0 <= dropout < 1:
        raise _error(f"{where}: dropout must be a number from 0 to below 1, got {alone['dropout']}", example)
    if (stabilized := alone.get("rslora", "false").lower()) not in ("true", "false"):
        raise _error(f"{where}: rslora must be true or false, got {alone['rslora']}", example)
    return Adapters(int(alone["rank"]), tuple(found[layers]), alpha, dropout, stabilized == "true")


def parse_tuning(frozen: str | None, adapters: str | None) -> Tuning:
    """Return the changes by the flags `--frozen` and `--adapters`.

    Args:
        frozen: see `parse_frozen`
        adapters: see `parse_adapters`

    Raises:
        ParamsError: one is not written as it should be, or both are asked for
    """
    if frozen is not None and adapters is not None:
        raise _error("--frozen: must be left out beside --adapters, which freeze all weights but their own")
    if adapters is not None:
        return Tuning(adapters=(parse_adapters(adapters),), where="--adapters")
    return Tuning(frozen=parse_frozen(frozen), where="--frozen") if frozen is not None else Tuning()


def by_rule(parse: Callable[[str], object]) -> Callable[[str], str]:
    """Return the check of a text that `parse` must understand, for a field of a section."""

    def check(text: str) -> str:
        try:
            parse(text)
        except ParamsError as error:
            [(message, hint)] = error.problems
            raise rule_error(message.partition(": ")[2].partition(", got ")[0], hint) from None
        return text

    return check


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and int(text) > 0


def _number(text: str | None) -> float | None:
    """A number; NaN for what is none; None for None."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return math.nan


def _error(message: str, hint: str | None = None) -> ParamsError:
    return ParamsError([(message, hint)])
