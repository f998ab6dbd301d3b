"""Weight streaming: the search for micro-batch, layout and recomputation.

The largest micro-batch that fits is found exactly: the memory of a PE grows in proportion to its tokens. For the
largest few, cycles of kernels over thousands of layouts are computed in arrays. Kernels alone do not decide which is
fastest: where a step waits for links or for SwarmX, slower kernels may do as well. So the step is simulated with
hundreds of layouts at once, which differ only in cycles of kernels; first layouts as wide as can be, then the best of
these over fewer columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from cstool.model.ir import ExecutionMode, Layout, Recompute
from cstool.plan.compiler.artifact import make_artifact
from cstool.plan.compiler.kernel_work import kernel_works
from cstool.plan.compiler.memory import recompute_options
from cstool.plan.compiler.program import Misfit, Program
from cstool.plan.compiler.stage import IntArray
from cstool.plan.compiler.stream_costs import Choice, Costs, LayoutCosts
from cstool.plan.compiler.stream_memory import Need, StreamMemory, alive_at_kernels
from cstool.plan.compiler.stream_plan import with_plan, without_step
from cstool.plan.timing.cluster import seconds_of_lanes
from cstool.plan.timing.micro_batches import all_shares, even_sizes
from cstool.plan.timing.pe import ceil_div
from cstool.plan.timing.streaming import Layouts
from cstool.plan.timing.wafer import schedule_of

SIZES = 8
"""sizes of micro-batches that fit, from the largest down; the fastest is taken, since tokens may fill banks better"""
LANES = 400
"""layouts of a size whose steps are estimated: so many by cycles of kernels, so many by the least time of a step"""
FAR = 1.02
"""ratio to the best estimate, from which on a choice is not simulated: the error of estimates for many micro-batches"""
MANY = 2
"""number of micro-batches: the best layouts for so many are the best for more"""
PARTS = 4, 16
"""one part in so many of the columns is tried for every layout: products with a vocabulary want many columns"""
FINER = tuple(1.2**-n for n in range(1, 17))
"""parts of them that are tried for the best"""
SIZES_NARROWED, NARROWED = 3, 32
"""sizes, and of the best groups and rows of each so many, that are tried on all numbers of columns"""
MORE, FOLDS = (0, 1, 2, 3, 4, 5, 6, 7), (2, 3, 4, 6, 8, 12, 16)
"""inputs to a PE, with fewer columns, or tokens, with fewer rows, that are tried: so many more than there must be, or
so many times as many"""
STREAMING = ExecutionMode.WEIGHT_STREAMING
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]


class Search:
    """Finds micro-batch, layout and recomputation.

    Only which of a few choices is fastest depends on the number of systems.

    Args:
        program: memory planned
    """

    def __init__(self, program: Program) -> None:
        self.program, self.works, self.request = program, kernel_works(program), program.request
        self.costs = Costs(program, self.works)
        self.alive = [alive_at_kernels(program, self.works, is_again) for is_again in (False, True)]
        self.fabric = program.request.system.fabric
        self.clock_hz = program.request.system.clock_hz
        self._layouts = cache(self._layouts_of)
        self._inputs = sorted({work.inputs for works in self.works for work in works} - {0})
        samples = self.request.samples_per_csx
        asked = self.request.micro_batch_size
        sizes = list(even_sizes(samples, asked or samples))
        # A size that is asked for is worth recomputation; where it does not fit at all, others are as good.
        is_asked = asked is not None and asked <= samples
        self.tries = (
            [sizes] if not is_asked else [sizes[:1]] if self.request.is_micro_batch_exact else [sizes[:1], sizes]
        )

    def _options(self) -> Sequence[Recompute]:
        blocks = sum(segment.count for segment in self.program.graph.segments[self.costs.first_block : -1])
        options = recompute_options(blocks)
        if self.request.recompute == "none":
            return options[:1]
        # All: each layer once, from its input.
        return options[1:2] or options if self.request.recompute == "all" else options

    def first_that_fits(self) -> Choice | None:
        """Return the choice that computes least again; None if nothing fits."""
        found = (choices for sizes in self.tries for choices in self._with_whole_samples(sizes))
        return next((choices[0] for choices in found), None)

    def of_one_size(self) -> list[Choice]:
        """Return the choices that may be fastest with the only size there is, for one micro-batch or many."""
        sizes = self.tries[0]
        choices = [
            choice for count in (1, MANY) for found in self._with_whole_samples(sizes, count) for choice in found
        ]
        if sizes[-1] == 1:
            choices += [choice for again in self._options() if (choice := self._in_parts(again)) is not None]
        return self._rivals(choices)

    def run(self, program: Program) -> Choice | Misfit:
        """Return the choice: of the largest micro-batches that fit, each in its best layout, the fastest one.

        Args:
            program: like the search's, for its number of systems
        """
        least_again = self._whole[0] if self._whole else self._parted[:1]
        if not least_again:
            return self._misfit(self._options()[-1])
        fastest = chosen = self._fastest(program, self.choices)
        if self.request.recompute == "needed" and chosen.memory.recompute != least_again[0].memory.recompute:
            chosen = self._fastest(program, least_again)
        is_least = chosen.memory.recompute == least_again[0].memory.recompute
        why = "nothing fits otherwise" if is_least else "a step takes less time so"
        if self.request.recompute == "all":
            why = "all of them are to be"
        elif is_least and [chosen.micro_batch_size] == self.tries[0]:
            why = f"micro-batches of {chosen.micro_batch_size} do not fit otherwise"
        return replace(chosen, fastest=None if fastest is chosen else fastest, why_again=why)

    @cached_property
    def _whole(self) -> list[list[Choice]]:
        """The choices with whole samples, least computed again first; of each the best, then others."""
        return next((found for sizes in self.tries if (found := list(self._with_whole_samples(sizes)))), [])

    @cached_property
    def _parted(self) -> list[Choice]:
        """The choices with samples in parts, where whole ones hardly fit."""
        if self.tries[-1][-1] > 1 or any(choices[0].micro_batch_size > 1 for choices in self._whole):
            return []
        return [choice for again in self._options() if (choice := self._in_parts(again)) is not None]

    @cached_property
    def choices(self) -> list[Choice]:
        """All choices that may be the fastest."""
        return self._rivals([*(choice for choices in self._whole for choice in choices), *self._parted])

    def _with_whole_samples(self, sizes: Sequence[int], count: int | None = None) -> Iterator[list[Choice]]:
        """Yield the best choices for each amount of recomputation that has any, the least first.

        A layout that fits with less computed again is no choice with more.

        Args:
            sizes: of micro-batches
            count: of micro-batches that choices are compared for; None for the number in a step
        """
        fitted: dict[int, BoolArray] = {}
        best_s = math.inf
        for recompute in self._options():
            choices: list[Choice] = []
            for size, layouts, costs in self._fitting(recompute, sizes, fitted):
                if len(choices) < SIZES_NARROWED and costs.least.min() < best_s * self.clock_hz:
                    choices.append(self._best_of(layouts, costs, recompute, size, count))
                    best_s = min(best_s, choices[-1].seconds)
            if choices:
                yield choices

    def _fitting(
        self, recompute: Recompute, sizes: Sequence[int], fitted: dict[int, BoolArray]
    ) -> list[tuple[int, Layouts, LayoutCosts]]:
        """Return (size of micro-batches, layouts, costs) of layouts that fit, sizes whose kernels are fastest first.

        Args:
            fitted: by size the layouts that fitted before, which are left out; new ones are added
        """
        found: list[tuple[int, Layouts, LayoutCosts]] = []
        fitting = 0
        for size in sizes:
            layouts = self._layouts(size)
            fits = layouts.tokens_per_pe <= self._memory(layouts.columns, recompute).most_tokens()
            fitting += bool(fits.any())
            before = fitted.get(size, np.zeros_like(fits))
            fitted[size] = fits | before
            if (new := fits & ~before).any():
                some = layouts.some(np.flatnonzero(new)).distinct()
                found.append((size, some, self._costs_of(some, recompute, size)))
            if fitting == SIZES:
                break
        return sorted(found, key=lambda each: int(each[2].steps.min()))

    def _best_of(
        self, layouts: Layouts, costs: LayoutCosts, recompute: Recompute, size: int, count: int | None
    ) -> Choice:
        """Return the choice with which a step is fastest by an estimate.

        Over as many columns, or fewer: sums of a token have a shorter way over fewer. Of the columns that are enough
        for some number of inputs to a PE, the fewest count.
        """
        ordered, _ = self._in_order(layouts, costs, recompute, size, count)
        # Of layouts that differ in columns alone the first.
        apart = replace(ordered, columns=np.ones_like(ordered.columns)).distinct()
        groups, _, rows, tokens_per_pe = (field[:NARROWED, None] for field in apart.fields)
        columns = self._fewer(self.fabric.width // groups)
        fits = tokens_per_pe <= self._memory(columns, recompute).most_tokens()
        narrower = Layouts(groups, columns, rows, tokens_per_pe).some(np.flatnonzero(fits)).distinct()
        costs = self._costs_of(narrower, recompute, size)
        ordered, seconds = self._in_order(narrower, costs, recompute, size, count)
        return Choice(ordered.first, self._memory(ordered.first.columns, recompute), size, float(seconds[0]))

    def _in_order(
        self, layouts: Layouts, costs: LayoutCosts, recompute: Recompute, size: int, count: int | None
    ) -> tuple[Layouts, FloatArray]:
        """Return the layouts with which a step is fastest by an estimate, and the estimates [s].

        The estimate is for one system. Where a step waits for the stream, kernels that take longer may do as well.
        """
        best = _least_of(LANES, costs.steps, costs.least)
        layouts = layouts.some(best)
        lanes = [
            [tuple(cycles[best] / self.clock_hz for cycles in phases) for phases in kernels] for kernels in costs.phases
        ]
        micro_batches = self.costs.micro_batches(size)
        count = count or min(micro_batches, MANY)
        choice = Choice(layouts.first, self._memory(layouts.first.columns, recompute), size, 0.0)
        artifact = make_artifact(without_step(self._alone(count * size), self.costs, choice), STREAMING)
        schedule = schedule_of(artifact, self.request.optimizer.update_ops)
        seconds = seconds_of_lanes(replace(schedule, micro_batches=count), lanes) * (micro_batches / count)
        order = seconds.argsort(kind="stable")
        return layouts.some(order), seconds[order]

    def _alone(self, samples: int) -> Program:
        """Return the program for one system with so many samples."""
        return replace(self.program, request=replace(self.request, num_csx=1, batch_size=samples))

    def _costs_of(self, layouts: Layouts, recompute: Recompute, size: int) -> LayoutCosts:
        return self.costs.of_layouts(layouts, self._memory(layouts.columns, recompute), size)

    def _fewer(self, widest: IntArray) -> IntArray:
        """Return numbers of columns, (n, numbers), that are worth a try where there are as many as `widest`, (n, 1)."""
        inputs = np.array(self._inputs)
        least = ceil_div(inputs, widest)[:, :, None]
        each = np.concatenate([least + np.array(MORE), least * np.array(FOLDS)], axis=2)
        fewer = ceil_div(inputs[:, None], each).reshape(len(widest), -1)
        finer = np.maximum(1, (widest * np.array(FINER)).astype(np.int64))
        return np.concatenate([widest, np.minimum(fewer, widest), finer], axis=1)

    def _in_parts(self, recompute: Recompute) -> Choice | None:
        """Return the best layout of one sample whose tokens go through layers in as few parts as fit, more than one."""
        memory = self._memory(self.fabric.width, recompute, in_parts=True)
        fitting = [
            Choice(replace(layout, parts=parts), memory, 1, math.inf)
            for layout in self._of_groups(1, 1)
            if (parts := memory.fewest_parts(layout.tokens_per_pe) or 1) > 1
        ]
        best = min(fitting, key=self.costs.step, default=None)
        samples = self.request.samples_per_csx
        return best and replace(best, seconds=self.step_cycles(self._alone(samples), best) / self.clock_hz)

    def _memory(self, columns: Any, recompute: Recompute, in_parts: bool = False) -> StreamMemory:
        alive = self.alive[recompute.levels > 0]
        return StreamMemory(self.program, self.works, columns, recompute, alive, in_parts)

    def _rivals(self, choices: Sequence[Choice]) -> list[Choice]:
        """Return the choices that may be fastest: more recomputation alone is no gain."""
        found: dict[tuple[Layout, int], Choice] = {}
        for choice in choices:
            other = found.setdefault((choice.layout, choice.micro_batch_size), choice)
            if self.costs.step(choice) < self.costs.step(other):
                found[choice.layout, choice.micro_batch_size] = choice
        return list(found.values())

    def _fastest(self, program: Program, rivals: Sequence[Choice]) -> Choice:
        """Return the choice whose step is shortest; choices far from the best by estimate are not simulated."""
        if len(rivals) == 1:
            return rivals[0]
        rivals = sorted(rivals, key=lambda choice: choice.seconds)
        best, step = rivals[0], self.step_cycles(program, rivals[0])
        for choice in rivals[1:]:
            if choice.seconds < FAR * rivals[0].seconds:
                cycles = self.step_cycles(program, choice)
                best, step = (choice, cycles) if cycles < step else (best, step)
        return best

    def step_cycles(self, program: Program, choice: Choice) -> int:
        """Return the modelled cycles of a step with a choice, simulated."""
        return with_plan(program, self.costs, choice).step_cycles[STREAMING]

    def _misfit(self, recompute: Recompute) -> Misfit:
        """Report the misfit that remains with all the recomputation there is."""
        size = self.tries[-1][-1]

        def fullest(groups: int) -> tuple[int, Need]:
            layout = self._of_groups(groups, size)[0]
            if size == 1:
                layout = replace(layout, parts=layout.tokens_per_pe)
            need = self._memory(layout.columns, recompute, in_parts=size == 1).fullest(layout)
            return need.total_bytes(layout), need

        # In the layout that comes closest.
        need_bytes, need = min(map(fullest, self._groups(size).tolist()), key=lambda found: found[0])
        system = self.request.system
        samples = "one sample" if size == 1 else f"a micro-batch of {size} samples"
        again = ", even if every layer is recomputed" if recompute.levels else ""
        return Misfit(
            f"{need.work.kernel.name} {need.work.shape_text}",
            f"{samples} must fit the SRAM of {system.name}, {system.pe.sram_bytes:,} bytes per PE, with all that the "
            f"backward pass needs{again}",
            f"{need_bytes:,} bytes",
        )

    def _groups(self, size: int) -> IntArray:
        """Numbers of groups of columns to try: the fewest that have as many samples each, whole ones."""
        return np.array([count for count in all_shares(size, size) if count <= self.fabric.width][::-1])

    def _layouts_of(self, size: int) -> Layouts:
        """Return layouts of a micro-batch, (groups, tokens per PE, columns)."""
        groups = self._groups(size)[:, None, None]
        most = self.fabric.width // groups
        # More columns than a kernel has inputs are of use to others alone.
        columns = np.concatenate([most // np.array([1, *PARTS]), np.minimum(most, np.array(self._inputs))], axis=2)
        return self._over_rows(groups, np.maximum(1, columns), size)

    def _over_rows(self, groups: IntArray, columns: IntArray, size: int) -> Layouts:
        """Return layouts over all rows, and over fewer, with tokens as they come and in whole rows of banks.

        Fewer rows have more tokens on each PE, but a shorter way for sums of gradients.

        Args:
            groups: numbers of groups of columns, (groups, 1, 1)
            columns: of each group, (groups, 1, columns)
            size: of the micro-batch
        """
        tokens = ceil_div(size, groups) * self.program.tokens
        least = ceil_div(tokens, self.fabric.height)
        folded = np.concatenate([least + np.array(MORE)[:, None], least * np.array(FOLDS)[:, None]], axis=1)
        per_pe = np.sort(np.concatenate([folded, self.costs.pe.whole_bank_rows(folded)], axis=1), axis=1)
        return Layouts(groups, columns, ceil_div(tokens, per_pe), per_pe)

    def _of_groups(self, groups: int, micro_batch_size: int) -> list[Layout]:
        """Return the layouts over so many groups, as wide as they can be, each once."""
        one = np.array([[[groups]]])
        fields = self._over_rows(one, self.fabric.width // one, micro_batch_size).fields
        found = zip(*(each.ravel().tolist() for each in np.broadcast_arrays(*fields)), strict=True)
        return list(dict.fromkeys(Layout(*each) for each in found))


def _least_of(count: int, *orders: IntArray) -> IntArray:
    """Return the indices of the `count` least by each of several orders, by the first order first, each once."""
    found = np.concatenate([order.argsort(kind="stable")[:count] for order in orders])
    return np.array(list(dict.fromkeys(found.tolist())))
