"""The description of a family of Hugging Face's library, and of a model of it that is one of ours, or a part of one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cstool.convert.hf_keys import Key
from cstool.model.ir import Graph
from cstool.model.params import DecoderParams, EncoderDecoderParams, EncoderParams, VisionTransformerParams

HfModel = DecoderParams | EncoderParams | EncoderDecoderParams | VisionTransformerParams
"""model sections that have a family at Hugging Face"""


@dataclass(frozen=True)
class Family:
    """A kind of model that Hugging Face's library has.

    Args:
        model_type: its name in config.json
        class_name: its class there
        called: names of models of the params that are written as this family, if they compute the same
        prefix: before the names of all tensors but the output layer's; input may lack it
        names: our name -> theirs, `.weight` and `.bias` left out; N is the number of the layer, E of the expert.
            Weights of the same name there are in one tensor, in this order.
        fixed: values of the params that every model of the family has
        keys: of config.json; they win over `fixed`, later ones over earlier ones
        norms_if_parallel: other names of norms, where parallel parts have one each
        by_groups: whether in the tensor of query, key and value each head of keys follows its queries, then its values
        is_transposed: whether matrices of layers are (in, out) there
        halves: whether the two elements that positions rotate together are half the rotary width apart there
        norm_offset: number that is added to the stored scales of norms
        passed_over: keys of config.json that change nothing
        ties: tensors that may be stored beside the tensors that they equal, both with their `.weight` or `.bias`
        passed_tensors: prefixes of tensors that are left out if present, with a note
        names_if_gated: other names, where the feed-forward part has a gate
        shapes: of a model, the shapes of tensors that have more dimensions there
        last_first: our weights whose last row is the first one there
    """

    model_type: str
    class_name: str
    called: tuple[str, ...]
    prefix: str
    names: Mapping[str, str]
    fixed: Mapping[str, Any]
    keys: tuple[Key, ...]
    norms_if_parallel: Mapping[str, str] | None = None
    by_groups: bool = False
    is_transposed: bool = False
    halves: bool = True
    norm_offset: float = 0.0
    passed_over: frozenset[str] = frozenset()
    ties: Mapping[str, str] = field(default_factory=dict)
    passed_tensors: tuple[str, ...] = ()
    names_if_gated: Mapping[str, str] = field(default_factory=dict)
    shapes: Callable[[Any], Mapping[str, tuple[int, ...]]] = lambda _: {}
    last_first: frozenset[str] = frozenset()


@dataclass(frozen=True)
class HfPart:
    """A model of theirs that is all of one of ours, or an encoder of it.

    Args:
        folder: within the folder of the model; empty for the folder itself
        family, model, graph: of its weights
    """

    folder: str
    family: Family
    model: HfModel
    graph: Graph
