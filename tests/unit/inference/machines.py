"""Small models that answer, for tests: random weights of a training appliance, behind a walk."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cstool.inference.decoding import Decoder
from cstool.inference.sampling import Beams, Sampling
from cstool.inference.sequences import Finish, Made, TokenRequest
from cstool.inference.team import Team
from cstool.inference.walk import Walk, Walks
from cstool.inference.weight_stream import WeightStream
from cstool.model.graphs import build_graph
from cstool.model.ir import Graph, panels_of
from cstool.model.params import SparsityParams
from cstool.training.kernels.cached_attention import News
from cstool.training.kernels.gemm_providers import FLOAT32
from cstool.training.kernels.quantized_rows import FORMATS
from cstool.training.machine.cluster import TABLE
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.memoryx.shards import deal_panels
from cstool.training.machine.memoryx.sparse_weights import DENSE, SparsityRules
from cstool.training.machine.memoryx_store import ShardFile
from cstool.training.machine.precision import matrices_of_products
from cstool.training.machine.ranks.link import ALONE, Link
from cstool.training.machine.sparsity import KernelChooser
from cstool.training.store import FileStore
from tests.models import decoder_params
from tests.unit.training.machine.machines import arrays_of, make_appliance, randomize

Array = np.ndarray
PROMPTS = ([3], [1, 4, 1, 5, 9, 2, 6], [2, 7, 1])


def one_token(**keys: Any) -> Graph:
    """Return the graph of a decoder as inference builds it: of one token, whatever the context."""
    return build_graph(decoder_params(**keys), 1)


@contextmanager
def walking(
    graph: Graph,
    *,
    sequences: int = 1,
    capacity: int = 1,
    threads: int = 1,
    file: Path | None = None,
    sparsity: SparsityRules | None = None,
    precision: str = "float32",
    link: Link = ALONE,
    executor: str = TABLE,
) -> Iterator[tuple[Walk, Mapping[str, Array]]]:
    """Lend a walk over a graph with large random weights, and these in float64; in a file, or else in memory.

    Each rank of a link keeps a part of them; the other ranks have their files beside this one.
    """
    settings: dict[str, Any] = {} if sparsity is None else {"sparsity": sparsity}
    settings |= {"link": link, "shards": deal_panels(KeptModel(graph, None, sparsity or DENSE), link.ranks)}
    if file is not None:
        settings |= {"store": FileStore(file, 2**24, slots=1, adopt=False, direct=False), "waiting_bytes": 0}
        settings["file"] = ShardFile(file.parent, False, 2**24, 1, None)
    usual: dict[str, Any] = {"seed": 3, "memory_bytes": 0}
    quantized = precision if precision in FORMATS else None
    host = FLOAT32 if quantized else precision
    with make_appliance(graph, **usual, precision=host, **settings) as appliance:
        if sparsity is None:
            randomize(appliance)
        else:
            appliance.memoryx.initialize(seed=3)
        weights = {} if sparsity else {name: w.astype(np.float64) for name, w in arrays_of(appliance, "model.").items()}
        appliance.memoryx.begin_evaluation(0, None)
        team, stream = Team(threads), WeightStream(appliance.memoryx, appliance.others)
        try:
            if quantized is not None:
                panels = [panel for weight in graph.weights.values() for panel in panels_of(weight)]
                stream.take(panels, matrices_of_products(graph), quantized)
            yield Walks(graph, stream, team, executor).walk(sequences, capacity), weights
        finally:
            stream.close()
            team.close()


def whole_news(length: int, slot: int = 0) -> News:
    """Say that all rows are the tokens of one sequence, from its first on."""
    return News.of([slot], [length])


def logits_of(walk: Walk, tokens: Sequence[int], rows: Sequence[int] | None = None, *, slot: int = 0) -> Array:
    """Return the logits of a sequence from its first token on, of all its tokens or of some."""
    wanted = np.arange(len(tokens)) if rows is None else np.array(rows, np.int64)
    return walk.run({walk.ids: np.array(tokens, np.int32)}, whole_news(len(tokens), slot), wanted)


def sparse_rules(graph: Graph, density: float, *choose: KernelChooser) -> SparsityRules:
    """Return rules that keep a share of the matrices of layers."""
    sparse = [name for name, weight in graph.weights.items() if len(weight.shape) > 1 and "layers" in name]
    return SparsityRules(dict.fromkeys(sparse, SparsityParams(sparsity=1 - density)), 5, 10, *choose)


def decoded(
    walk: Walk,
    prompts: Sequence[Sequence[int]],
    count: int,
    choice: Sampling | Beams,
    *,
    first_prompt: int = 0,
    finish: Finish = lambda tokens: None,
    **keys: Any,
) -> list[Made]:
    """Return the tokens that follow prompts, as they come; the prompts of an encoder-decoder have a source each."""
    requests = [
        TokenRequest(first_prompt + k, prompt, count, choice, finish, source=k) for k, prompt in enumerate(prompts)
    ]
    stopped = keys.pop("stopped", lambda: False)
    decoder, found = Decoder(walk, **keys), []
    for request in requests:
        decoder.admit(request)
    while decoder.is_busy:
        found += decoder.step(stopped)
    return found


def made(walk: Walk, prompts: Sequence[Sequence[int]], count: int, **keys: Any) -> list[list[int]]:
    """Return the tokens that follow each prompt."""
    found: dict[int, list[int]] = {}
    for one in decoded(walk, prompts, count, keys.pop("sampling", Sampling(0.0)), **keys):
        found.setdefault(one.prompt, []).extend(one.tokens)
    return [found[number] for number in sorted(found)]
