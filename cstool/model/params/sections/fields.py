"""Kinds of fields that several model sections have, and what all of these sections answer."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from cstool.foundation.yaml_lines.section import Count, Section, filled
from cstool.model.activations import ACTIVATIONS

MAX_VOCAB_SIZE = 512_000
MAX_LAYERS = 1000
"""Source: the vendor's GPT-2 schema."""
METRICS = ("loss", "accuracy")
"""metrics of a classifier"""
PRECISION_KEYS = frozenset({"mixed_precision", "fp16_type", "to_float16", "dtype", "use_bfloat16"})
"""arithmetic is float32 throughout"""
NONLINEARITIES = {theirs: name for name, row in ACTIVATIONS.items() for theirs in row.vendor_names}
"""the vendor's names of the functions of a feed-forward layer -> names in the kernels"""
GATED_NONLINEARITIES = {row.gate: name for name, row in ACTIVATIONS.items() if row.gate is not None}
"""names of gated functions -> the function of the gate"""


class AttentionExtraParams(Section):
    """Settings of multi-query attention: the number of heads of keys and values."""

    num_kv_groups: Count | None = None

    without_effect = frozenset({"attention_kernel"})


class ModelSection(Section):
    """The section of a model."""

    loss_term: ClassVar[str] = "sample"
    """unit with a loss of its own: `token`, `masked token`, `sentence`, or `sample` where a sample has one loss"""
    makes_text: ClassVar[bool] = False
    """whether it makes text of prompts"""

    usual_metrics: ClassVar[tuple[str, ...]] = METRICS

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics of evaluations."""
        return self.usual_metrics

    @property
    def rate_factors(self) -> Mapping[str, float]:
        """Factors of muP on the learning rate, by group of weights; none without muP."""
        return {}

    @property
    def switches(self) -> tuple[str, ...]:
        """The keys that say whether others count, as far as these are given."""
        return ()

    @property
    def inert_keys(self) -> Mapping[str, str]:
        """Keys that are given and change nothing, as at the vendor -> the key with which they do."""
        return {}

    @property
    def sees_by_place(self) -> bool:
        """Whether the place of a token in its sample decides which tokens it sees, or is seen by."""
        return False


def unset(**settings: Any) -> Any:
    """A field that other keys fill where it is not given, by its validators."""
    return Field(None, validate_default=True, **settings)


def as_key(other: str, default: Any) -> BeforeValidator:
    """Validator that takes the value of another key, or its default, for a null."""
    return filled(lambda data: data.get(other, default))


def as_rate(other: str) -> BeforeValidator:
    """Validator that takes the value of another key for a rate of null."""
    return as_key(other, 0.0)


Vocabulary = Annotated[int, Field(ge=1, le=MAX_VOCAB_SIZE)]
Layers = Annotated[int, Field(ge=1, le=MAX_LAYERS)]
_NONLINEARITIES = tuple(NONLINEARITIES | GATED_NONLINEARITIES)
Nonlinearity = Literal[_NONLINEARITIES]  # type: ignore[valid-type]
AttentionType = Literal["scaled_dot_product", "dot_product"]
AttentionModule = Literal["aiayn_attention", "multiquery_attention"]
NormType = Literal["layernorm", "biasless-layernorm", "rmsnorm"]
HeadGroups = Annotated[AttentionExtraParams, filled(lambda _: {})]
ByMup = Annotated[bool, filled(lambda data: data.get("mup_base_hidden_size") is not None)]
"""true with muP where nothing is said"""
