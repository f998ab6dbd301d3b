"""A model that is compiled for many numbers of systems, batches and choices: shared work is done once.

Nothing up to the plan of memory depends on systems, samples or choices. Nor do the possible layouts of a micro-batch of
so many samples, so they are found once for each size; the number of micro-batches and the number of systems only scale
the result.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cache
from typing import Unpack

from cstool.foundation.errors import CompileError
from cstool.model.graphs.statistics import count_statistics
from cstool.model.ir import Artifact, ExecutionMode, KernelCycles
from cstool.model.params import Params
from cstool.model.system import System
from cstool.plan.compiler.artifact import make_artifact, with_step
from cstool.plan.compiler.compile import MEMORY_PASSES, Options, make_program, run_passes
from cstool.plan.compiler.pipelining import certainly_fits_not, place_stages, route_edges
from cstool.plan.compiler.program import Program, Request, memoryx_need
from cstool.plan.compiler.streaming import choices_of_micro_batch, cycles_of_micro_batch
from cstool.plan.timing.micro_batches import even_sizes
from cstool.plan.timing.pe import ceil_div

STREAMING, PIPELINED = ExecutionMode.WEIGHT_STREAMING, ExecutionMode.PIPELINED


@dataclass(frozen=True)
class Streamed:
    """How a micro-batch may be streamed.

    Args:
        samples: of the micro-batch
        busy_cycles: in which the PEs of a system are at work for it
        program: with the plan
    """

    samples: int
    busy_cycles: int
    program: Program


class Prepared:
    """A model up to the plan of memory.

    Args:
        params: of one trainer; their batch and number of systems do not count, their micro-batch is the largest
        system: kind of each CSX
        modes: of execution that are allowed; `may_pipeline` says whether stages may fit
        options: see `compile.Options`

    Raises:
        CompileError: there is no batch at all
    """

    def __init__(
        self,
        params: Params,
        system: System,
        modes: Collection[ExecutionMode] = (STREAMING, PIPELINED),
        **options: Unpack[Options],
    ) -> None:
        self._most = params.micro_batch_size
        if (loader := params.compiled_dataloader) is not None:
            loader = loader.model_copy(update={"batch_size": 1})
            params = replace(params, train_dataloader=loader, num_csx=1)
        program = make_program(params, system, **options)
        self._program = run_passes(program, MEMORY_PASSES)
        memoryx = system.memoryx
        self._streams = STREAMING in modes and memoryx is not None
        if memoryx is not None and memoryx_need(self._program).total_bytes > memoryx.capacity_bytes:
            self._streams = False
        self.may_pipeline = PIPELINED in modes and certainly_fits_not(self._program) is None
        self._of_size = cache(self._choices)

    @property
    def tokens(self) -> int:
        """Of a sample; 1 where there is no sequence."""
        return self._program.tokens

    @property
    def sample_flops(self) -> int:
        """Floating-point operations of the products of a sample, forward and backward, zeros of weights among them."""
        return count_statistics(self._program.graph).sample_flops.total

    def streamed(self, samples: int, recompute: str = "fastest") -> list[Streamed]:
        """How the samples of a system may be streamed, of every size of micro-batch that is worth a try.

        The potentially fastest come first: PEs are at work for no less than `busy_cycles` of each micro-batch.

        Args:
            samples: of a step, of each system
            recompute: see `compile.Options`
        """
        if not self._streams:
            return []
        sizes = list(even_sizes(samples, min(samples, self._most or samples)))
        found: list[Streamed] = []
        for size in reversed(sizes):
            choices = self._of_size(size, recompute)
            if not choices:
                # Memory of a PE grows with its tokens, so larger sizes do not fit either.
                break
            found += choices
        return sorted(found, key=lambda choice: self.busy_cycles(choice, samples))

    def busy_cycles(self, choice: Streamed, samples: int) -> int:
        """Cycles in which the PEs of a system are at work in a step of so many samples."""
        return int(ceil_div(samples, choice.samples)) * choice.busy_cycles

    def _choices(self, size: int, recompute: str) -> tuple[Streamed, ...]:
        request = replace(self._of_one(size), recompute=recompute)
        found = choices_of_micro_batch(replace(self._program, request=request))
        return tuple(Streamed(size, cycles, program) for cycles, program in found)

    def kernel_cycles(self, size: int) -> tuple[tuple[int, KernelCycles], ...]:
        """Repetitions and cycles of the kernels for a micro-batch of so many samples; none where it does not fit."""
        return cycles_of_micro_batch(replace(self._program, request=self._of_one(size)))

    def artifact(self, choice: Streamed, num_csx: int, samples: int) -> Artifact:
        """The artifact of a choice, for systems with so many samples of a step each; without inputs or reasons."""
        plan = choice.program.streaming
        assert plan is not None
        count = int(ceil_div(samples, choice.samples))
        scaled = replace(
            plan,
            micro_batches=count,
            streamed_bytes=count * plan.streamed_bytes,
            gradient_bytes=count * plan.gradient_bytes,
        )
        program = replace(choice.program, streaming=scaled, request=self._request(num_csx, samples, STREAMING))
        return make_artifact(with_step(program, STREAMING), STREAMING)

    def pipelined(
        self, num_csx: int, samples: int, rival: Artifact | None, recompute: str = "fastest"
    ) -> Artifact | None:
        """The artifact for pipelined mode; None where it does not fit, or is not worth a placement.

        Args:
            num_csx: systems
            samples: of a step, of each
            rival: with weights streamed, if possible: a plan twice as slow by estimate is not placed
            recompute: see `compile.Options`
        """
        if not self.may_pipeline:
            return None
        request = replace(self._request(num_csx, samples, PIPELINED), recompute=recompute)
        program = replace(self._program, request=request)
        if rival is not None:
            known = {"step_cycles": rival.step_cycles, "micro_batches": rival.micro_batch_size}
            program = program.with_known(STREAMING, **known)
        try:
            program = route_edges(place_stages(program))
        except CompileError:
            return None
        return None if program.pipelined is None else make_artifact(program, PIPELINED)

    def _of_one(self, size: int) -> Request:
        """Return the request for one micro-batch of exactly so many samples."""
        return replace(self._request(1, size, STREAMING), micro_batch_size=size, is_micro_batch_exact=True)

    def _request(self, num_csx: int, samples: int, mode: ExecutionMode) -> Request:
        return replace(
            self._program.request,
            num_csx=num_csx,
            batch_size=num_csx * samples,
            execution_mode=mode,
            micro_batch_size=self._most,
            is_micro_batch_exact=False,
        )
