"""A trained model, ready to answer: its checkpoint in MemoryX, in memory or in files, and threads to walk it."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from cstool.foundation.errors import ClusterError, InferenceError
from cstool.foundation.host_memory import available_memory_bytes
from cstool.foundation.progress import Progress
from cstool.inference.adapters import NO_ADAPTERS, AdapterSet, read_adapters
from cstool.inference.memory import cache_bytes
from cstool.inference.source import parts_of
from cstool.inference.team import Team
from cstool.inference.walk import Walks
from cstool.inference.weight_stream import WeightStream
from cstool.model.graphs import SampleForm, build_graph
from cstool.model.graphs.tuning import tuned
from cstool.model.ir import Graph, panels_of
from cstool.model.params import (
    DecoderParams,
    DprParams,
    EncoderDecoderParams,
    EncoderParams,
    FcMnistParams,
    Params,
)
from cstool.training.kernels.gemm_providers import FLOAT32
from cstool.training.kernels.one_thread import one_blas_thread
from cstool.training.kernels.quantized_rows import FORMATS
from cstool.training.machine.cluster import TABLE
from cstool.training.machine.grains import available_cores
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.memoryx_store import keeps_adapters_apart, open_backing
from cstool.training.machine.precision import matrices_of_products
from cstool.training.machine.prepare import needed_kernels, prepare_kernels, prepare_model_dir
from cstool.training.machine.ranks.link import ALONE, Link
from cstool.training.machine.ranks.orders import spread_memoryx
from cstool.training.machine.sparsity import KernelChooser, sparsity_rules
from cstool.training.machine.start import Start, choose_start, folds_untied, restore

log = logging.getLogger("cstool")

AnsweringParams = DecoderParams | EncoderDecoderParams | EncoderParams | DprParams | FcMnistParams
"""the model section of a model that answers"""
CACHE_SHARE = 0.5
"""largest share of the free memory for the keys and values of all sequences"""


def check_answers(params: Params) -> None:
    """Check that the model of these params is of a kind that answers, or raise InferenceError."""
    model = params.answering.model
    if not isinstance(model, AnsweringParams):
        raise InferenceError(
            f"{params.path}: the model must be a decoder, an encoder-decoder, an encoder or fc_mnist, got {model.name}",
            "--mode eval says how well it does on its validation data",
        )


def _kept(params: Params, *, folds: bool) -> KeptModel:
    """The model that answers, without adapters or with those of the params."""
    assert isinstance(params.model, AnsweringParams)
    # A sequence of one token is enough to know the ops; each pass sets its own size.
    form = None if isinstance(params.model, FcMnistParams) else SampleForm(1, 1, targets=1)
    graph = build_graph(params.model, form)
    graph = graph if folds else tuned(graph, params.tuning)
    # Which kernel computes with a sparse weight is for the walk to say.
    return KeptModel(graph, None, sparsity_rules(params, graph, KernelChooser("always")), params.host_precision)


def _adapters_for(paths: Sequence[Path], start: Start, graph: Graph, params: Params) -> AdapterSet:
    """Read the adapters that are asked for.

    Raises:
        InferenceError: the model has no place for them
        CheckpointError: one is not for the checkpoint
    """
    makes_text = isinstance(params.model, DecoderParams) and params.model.makes_text
    if paths and not makes_text:
        way = "cstool checkpoint merge folds one into the weights"
        raise InferenceError(f"--adapter: must be for a decoder that makes text, got {params.model.name}", way)
    if paths and start.checkpoint is None:
        raise InferenceError(f"--adapter: must go with a checkpoint of the base, got {start.path}")
    return NO_ADAPTERS if start.checkpoint is None else read_adapters(paths, start.checkpoint, graph)


class InferenceModel(Walks):
    """A model that answers. Use as a context manager.

    Args:
        params: of the run that trained it; of DPO the policy answers
        checkpoint_path: None for the latest state in model_dir
        lanes: host threads; None for as many as there are cores
        link: to other ranks, which keep a part of the weights each and send it here
        executor: as of `Walk`
        adapters: checkpoints of adapters of the checkpoint, a text for each of which is made of a prompt
        folds: whether adapters in the checkpoint are folded into its weights, where that needs no copy of a base in a
            file; else they stand beside them
        precision: of the weights of products: "float32", "bfloat16", or a format of 8 or 4 bits, one of `FORMATS`; None
            for that of the params
        progress: is told each stage of the work

    Raises:
        CstoolError: any error that the user can act on
    """

    def __init__(
        self,
        params: Params,
        *,
        checkpoint_path: Path | None = None,
        lanes: int | None = None,
        link: Link = ALONE,
        executor: str = TABLE,
        adapters: Sequence[Path] = (),
        folds: bool = True,
        precision: str | None = None,
        progress: Progress,
    ) -> None:
        check_answers(params)
        quantized = precision in FORMATS
        if precision is not None:
            host = params.precision.model_copy(update={"host": FLOAT32 if quantized else precision})
            params = replace(params, precision=host)
        # A commit of DPO has its reference, too, one with adapters its base: the answering model is read out of it.
        is_all = params.answering is params and not params.tuning.adapters
        params = params.answering
        assert isinstance(params.model, AnsweringParams)
        start = choose_start(params, checkpoint_path, None, trains=False, link=link)
        self.checkpoint = start.path
        """file with the weights"""
        unfolded = params
        if folds and folds_untied(start.path):
            params = replace(params, model=params.model.model_copy(update={"share_embedding_weights": False}))
        kept = _kept(params, folds=folds)
        if folds and keeps_adapters_apart(params, kept, start, link):
            params = unfolded
            kept = _kept(params, folds=False)
        graph, sparsity, self.params = kept.graph, kept.sparsity, params
        self.precision = precision or params.host_precision
        """of the weights of products: bfloat16 has half the bytes of float32, formats of 8 bits a quarter"""
        with ExitStack() as stack:
            if os.access(params.model_dir, os.W_OK):
                prepare_model_dir(params.model_dir)
            files = list(dict.fromkeys(adapters))
            chosen = _adapters_for(files, start, graph, params)
            self.adapter_names = [str(path) for path in files]
            """files of the adapters"""
            backing = open_backing(params, kept, start, lanes, link=link, in_place=is_all)
            if backing.store is not None:
                stack.callback(backing.store.close)
            stack.enter_context(one_blas_thread())
            others = spread_memoryx(kept, backing, link=link, lanes=lanes, seed=params.seed, apart=1)
            stack.callback(others.close)
            self.memoryx = others.memoryx
            needs = needed_kernels(graph, self.precision, sparsity.groups, answers=True)
            prepare_kernels(progress, needs)
            stream = WeightStream(self.memoryx, others)
            stack.callback(stream.close)
            matrices = matrices_of_products(graph) if quantized else frozenset()

            def loaded(weight: str) -> None:
                # Each is made smaller before the next one comes.
                if stream.is_resident and weight in matrices and weight not in self.memoryx.arrays.sparse:
                    stream.take(panels_of(graph.weights[weight]), matrices, self.precision)

            position, _ = restore(self.memoryx, params, start, progress, loaded)
            self.step = position.step
            """step of the training that it comes from"""
            self.memoryx.begin_evaluation(self.step, None)
            team = Team(lanes or available_cores())
            stack.callback(team.close)
            if quantized:
                panels = [panel for weight in graph.weights.values() for panel in panels_of(weight)]
                stream.take(panels, matrices, self.precision)
            super().__init__(graph, stream, team, executor, chosen)
            self._stack = stack.pop_all()

    def __enter__(self) -> InferenceModel:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def cache_bytes(self, prompts: int, capacity: int, beams: int = 1, source: int = 0) -> int:
        """Size of the keys and values of so many prompts, see `sequences_that_fit` [bytes]."""
        graph = parts_of(self.graph)[1] if source else self.graph
        return cache_bytes(graph, prompts * beams, capacity, (prompts, source))

    def sequences_that_fit(self, capacity: int, beams: int = 1, source: int = 0) -> int:
        """Return the number of prompts that memory suffices for.

        Args:
            capacity: most tokens of a sequence
            beams: sequences of each prompt
            source: most tokens of a prompt that an encoder reads; 0 where there is none

        Raises:
            ClusterError: not for one
        """
        free_bytes, one_bytes = available_memory_bytes(), self.cache_bytes(1, capacity, beams, source)
        if one_bytes > CACHE_SHARE * free_bytes:
            which, fewer = ("a sequence", "") if beams == 1 else (f"{beams} beams", ", or fewer beams,")
            raise ClusterError(
                f"{which} of {capacity:,} tokens: keys and values must fit half of the free memory "
                f"({int(CACHE_SHARE * free_bytes):,} bytes), got {one_bytes:,} bytes",
                f"a smaller --max_tokens{fewer} needs less",
            )
        return int(CACHE_SHARE * free_bytes / max(1, one_bytes)) if one_bytes else 2**31
