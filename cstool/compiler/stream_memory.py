"""Weight streaming: what the fullest PE holds, kernel by kernel, to the byte.

A PE holds t tokens of ceil(width / columns) elements of every activation that is alive. So its need is a fixed part and
one that grows with t, and the most tokens that fit follow by division.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from cstool.compiler.kernel_work import KernelWork
from cstool.compiler.memory import live_at
from cstool.compiler.program import Life, Program, frozen_segments, width_per_token
from cstool.ir import Pairs, Recompute, SramEntry
from cstool.perf.pe import SUM_BYTES, Pe, ceil_div, input_element_bytes
from cstool.perf.region import key_block
from cstool.perf.streaming import LEAST_OUTPUTS
from cstool.system import System


@dataclass(frozen=True)
class Need:
    """What one kernel needs of a PE.

    Args:
        segment: number of its segment
        work: of the kernel
        fixed: name -> (bytes, arithmetic), whatever the tokens
        growing: name -> (bytes per token, arithmetic)
    """

    segment: int
    work: KernelWork
    fixed: dict[str, tuple[int, str]]
    growing: dict[str, tuple[int, str]]

    @property
    def fixed_bytes(self) -> int:
        """Whatever the tokens."""
        return sum(size for size, _ in self.fixed.values())

    @property
    def token_bytes(self) -> int:
        """Per token on the PE."""
        return sum(size for size, _ in self.growing.values())

    def total_bytes(self, tokens: int) -> int:
        """Of a PE with so many tokens."""
        return self.fixed_bytes + tokens * self.token_bytes

    def most_tokens(self, sram_bytes: int) -> int:
        """Number of tokens that a PE can hold; negative or 0 if none."""
        return (sram_bytes - self.fixed_bytes) // self.token_bytes

    def account(self, tokens: int) -> tuple[SramEntry, ...]:
        """Return the account of a PE with so many tokens."""
        fixed = [SramEntry(name, *entry) for name, entry in self.fixed.items()]
        times = f"{tokens} {'token' if tokens == 1 else 'tokens'}"
        growing = [SramEntry(name, tokens * size, f"{times} x {text}") for name, (size, text) in self.growing.items()]
        return (*fixed, *growing)


Alive = list[list[list[list[Life]]]]
"""per segment and kernel, what is alive at each moment that may be the fullest, over however many columns it lies"""


def alive_at_kernels(program: Program, works: tuple[tuple[KernelWork, ...], ...], is_again: bool) -> Alive:
    """Live tensors, forward or backward, with recomputation or without."""
    return [[_alive_at(program, segment, work, is_again) for work in kernels] for segment, kernels in enumerate(works)]


def _alive_at(program: Program, segment: int, work: KernelWork, is_again: bool) -> list[list[Life]]:
    ops = program.graph.segments[segment].ops
    lives = program.lives[segment]
    names = set(work.kernel.ops)
    moments = [now for now, op in enumerate(ops) if op.name in names]
    moments += [2 * len(ops) - 1 - now for now in moments]
    alive = [live_at(lives, moment) for moment in moments]
    if is_again and 0 < segment < len(program.graph.segments) - 1:
        # When a block runs again, the delta of its output is there already.
        waiting = {f"delta {life.name}" for life in lives if life.is_output}
        again = [life for life in lives if life.name in waiting]
        alive = [found + again * (moment < len(ops)) for found, moment in zip(alive, moments, strict=True)]
    fullest: list[tuple[Counter[tuple[int, bool]], list[Life]]] = []
    for found in alive:
        sizes = Counter((life.width, life.is_operand) for life in found)
        # What is no more than at another moment takes no more, over any columns.
        if not any(sizes <= other for other, _ in fullest):
            fullest = [(other, there) for other, there in fullest if not other <= sizes]
            fullest.append((sizes, found))
    return [found for _, found in fullest]


class StreamMemory:
    """The needs of all kernels with activations over so many columns.

    Args:
        alive: at the moments of the kernels; None to find out
    """

    def __init__(
        self,
        program: Program,
        works: tuple[tuple[KernelWork, ...], ...],
        columns: int,
        recompute: Recompute,
        alive: Alive | None = None,
    ) -> None:
        alive = alive or alive_at_kernels(program, works, is_again=recompute.levels > 0)
        self.program, self.columns, self.recompute = program, columns, recompute
        self.operand_bytes = program.request.operand_bits // 8
        self.system: System = program.request.system
        kept = [self._kept_bytes(number) for number in range(len(works))]
        outputs = [sum(self.tile_bytes(life) for life in lives if life.is_output) for lives in program.lives]
        counts = [segment.count for segment in program.graph.segments]
        first, last = frozen_segments(program.graph), len(works) - 1
        carried = self._carried_bytes(first)
        block_bytes = max(outputs[first:last], default=0)
        self.needs: list[Need] = []
        for number, kernels in enumerate(works):
            if number < first:
                others = max(outputs[:first])
                text = "the input of a block that runs forward alone"
            elif recompute.levels and number > first:
                # While the last segment runs, nothing runs again yet, and the output of the last block is there.
                held = (
                    recompute.kept_blocks
                    if number < last
                    else -(-sum(counts[first + 1 : last]) // recompute.spans[0]) + 1
                )
                # The first segment does not run again: what it keeps for itself stays.
                before = kept[first] - outputs[first] + carried
                others = held * block_bytes + before
                text = f"inputs of {held:,} blocks x {block_bytes} B"
                text = f"({text} + {before} B), what backward needs" if before else text
            else:
                left = [
                    *((counts[i], kept[i]) for i in range(first, number)),
                    (counts[number] - 1, kept[number]),
                    (1, carried),
                ]
                others = sum(count * size for count, size in left)
                layers = " + ".join(f"{count} x {size} B" for count, size in left if count * size)
                text = f"({layers or '0 B'}), what backward needs"
            for work, moments in zip(kernels, alive[number], strict=True):
                self.needs.append(self._need(number, work, moments, others, text))

    def most_tokens(self) -> int:
        """Upper bound of the tokens that a PE can hold."""
        return min(need.most_tokens(self.system.pe.sram_bytes) for need in self.needs)

    def outputs_in_flight(self, segment: int, work: KernelWork, tokens: int) -> int:
        """Accumulators per token of a kernel; where weights are sparse, all that fit."""
        if not work.is_sparse:
            return LEAST_OUTPUTS
        (need,) = (need for need in self.needs if need.segment == segment and need.work is work)
        free = self.system.pe.sram_bytes - need.total_bytes(tokens)
        return LEAST_OUTPUTS + max(0, free) // (SUM_BYTES * tokens)

    def fullest(self, tokens: int) -> Need:
        """Return the need of the kernel that needs most."""
        return max(self.needs, key=lambda need: need.total_bytes(tokens))

    def tile_bytes(self, life: Life) -> int:
        """Memory of a PE for a token of an activation."""
        size = self.operand_bytes if life.is_operand else SUM_BYTES
        return size * int(ceil_div(life.width, self.columns))

    def _carried_bytes(self, first: int) -> int:
        """Memory per token of what segments that run forward alone leave for the others, to the end."""
        graph = self.program.graph
        if not first:
            return 0  # as for most models, whose ops need not be gone through for every layout that is tried
        read = {name for op in graph.ops if op.name not in graph.frozen_ops for name in op.inputs}
        carried = (
            life
            for segment, lives in zip(graph.segments[:first], self.program.lives, strict=False)
            for life in lives
            if life.is_output and segment.name_of(life.name, segment.count - 1) in read
        )
        return sum(map(self.tile_bytes, carried))

    def _kept_bytes(self, segment: int) -> int:
        """Memory that a repetition of a segment keeps for backward, per token."""
        middle = len(self.program.graph.segments[segment].ops)
        lives = self.program.lives[segment]
        return sum(self.tile_bytes(life) for life in lives if life.start < middle <= life.stop)

    def _need(self, segment: int, work: KernelWork, moments: list[list[Life]], others: int, others_text: str) -> Need:
        pe, columns, operand = self.system.pe, self.columns, self.operand_bytes
        i = int(ceil_div(work.inputs, columns))
        fixed = {
            "code": (pe.code_bytes, "as the system file says"),
            "stack": (pe.stack_bytes, "as the system file says"),
        }
        spread = f"ceil({work.inputs:,} / {columns})"
        growing: dict[str, tuple[int, str]] = {}
        if i:
            # Weights on their way in, or sums of gradients on their way out: never both.
            fixed["weights or gradients in flight"] = (2 * i * SUM_BYTES, f"2 rows x {spread} x {SUM_BYTES} B")
            growing["accumulators"] = (LEAST_OUTPUTS * SUM_BYTES, f"{LEAST_OUTPUTS} outputs x {SUM_BYTES} B")
        if work.vectors:
            held = SUM_BYTES * sum(int(ceil_div(size, columns)) for size in work.vectors)
            sizes = " + ".join(f"ceil({size:,} / {columns})" for size in work.vectors)
            fixed["biases and norms"] = (held, f"({sizes}) x {SUM_BYTES} B")
        if (pairs := work.pairs) is not None:
            fixed.update(self._attention_buffers(pairs))
        graph = self.program.graph
        # The model's inputs stay for the whole micro-batch.
        for tensor in graph.inputs:
            width = width_per_token(tensor, graph.tokens)
            element = input_element_bytes(tensor, self.program.request.operand_bits)
            text = f"ceil({width:,} / {columns}) x {element} B"
            growing[tensor.name] = int(ceil_div(width, columns)) * element, text
        if others:
            growing["kept of other layers"] = (others, others_text)
        for life in max(moments, key=lambda alive: sum(map(self.tile_bytes, alive))):
            element = operand if life.is_operand else SUM_BYTES
            growing[life.name] = self.tile_bytes(life), f"ceil({life.width:,} / {columns}) x {element} B"
        return Need(segment, work, fixed, growing)

    def _attention_buffers(self, pairs: Pairs) -> Iterator[tuple[str, tuple[int, str]]]:
        d, operand = int(ceil_div(pairs.kv_width, self.columns)), self.operand_bytes
        keys = int(key_block(Pe(self.system, self.program.request.operand_bits), pairs.key_tokens, d))
        tile = f"{keys} keys x ceil({pairs.kv_width:,} / {self.columns})"
        yield "keys and values passing by", (2 * 2 * keys * d * operand, f"2 blocks x 2 x {tile} x {operand} B")
        yield "their deltas", (2 * keys * d * SUM_BYTES, f"2 x {tile} x {SUM_BYTES} B")
        yield "scores", (2 * keys * SUM_BYTES, f"2 x {keys} keys x {SUM_BYTES} B")
