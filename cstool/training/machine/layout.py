"""The layout of the systems of all ranks for batches of one size: the memory of a grain, and the dealing of grains."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from cstool.foundation.errors import ClusterError
from cstool.model.batch_split import even_parts
from cstool.model.ir import Graph
from cstool.training.machine.grains import Deal, deal_grains
from cstool.training.machine.plan import Plan, make_plan
from cstool.training.machine.precision import ALL_FLOAT32, Narrow


@dataclass(frozen=True)
class Layout:
    """The systems for batches of one size, as all ranks agree on it: rank 0 makes it and sends it to the others.

    Args:
        plan: buffers of a slot, the memory of one grain, and the ops to run
        whole_slot_bytes: size of a slot if all that can be kept is kept [bytes]
        deal: the dealing of grains to systems
        ranks: number of ranks; systems are dealt to them in order
        trains: whether it is for training
    """

    plan: Plan
    whole_slot_bytes: int
    deal: Deal
    ranks: int
    trains: bool

    def systems(self, rank: int) -> Sequence[int]:
        """Numbers of the systems of a rank."""
        return even_parts(range(self.deal.num_csx), self.ranks)[rank]

    def activation_bytes(self, rank: int) -> int:
        """Memory of all slots of a rank [bytes]."""
        return self.plan.slot_bytes * sum(self.deal.slots[system] for system in self.systems(rank))

    def wave(self, wave: int, rank: int) -> list[Sequence[int]]:
        """Numbers of the grains of a wave, for each system of a rank."""
        shares = self.deal.shares(wave)
        return [shares[system] for system in self.systems(rank)]

    def wave_grains(self, wave: int, rank: int) -> list[int]:
        """Numbers of the grains of a wave that are of a rank, in order."""
        return list(chain.from_iterable(self.wave(wave, rank)))

    def grains(self, rank: int) -> list[int]:
        """Numbers of all grains of a rank, in order."""
        waves = (self.wave(wave, rank) for wave in range(self.deal.waves))
        return sorted(chain.from_iterable(chain.from_iterable(waves)))


def lay_out(
    graph: Graph,
    *,
    grain: int,
    grains: int,
    num_csx: int,
    trains: bool,
    memory_bytes: Sequence[int],
    recompute: str = "auto",
    narrow: Narrow = ALL_FLOAT32,
) -> Layout:
    """Lay out the systems.

    Args:
        grain: samples of a grain
        grains: grains of a global batch
        trains: whether it is for training
        memory_bytes: limit of the slots of a rank together, by rank [bytes]
        recompute: see `Appliance`
        narrow: names that are bfloat16

    Raises:
        ClusterError: the activations of one grain do not fit
    """
    whole = plan = make_plan(graph, grain, trains=trains, keeps=trains, narrow=narrow)
    ranks = len(memory_bytes)

    def fits(plan: Plan) -> bool:
        one_wave = Layout(plan, whole.slot_bytes, Deal(grains, num_csx, 1), ranks, trains)
        return all(one_wave.activation_bytes(rank) <= memory_bytes[rank] for rank in range(ranks))

    if trains and (recompute == "always" or not fits(whole)):
        plan = make_plan(graph, grain, trains=True, narrow=narrow)
        if recompute == "always" or recompute == "auto" and not fits(plan):
            plan = make_plan(graph, grain, trains=True, recomputes=True, narrow=narrow)
    deal = deal_grains(grains, num_csx, [size // plan.slot_bytes for size in memory_bytes])
    if deal is None:
        raise ClusterError(
            f"the activations of one grain ({grain} x {plan.tokens} tokens) need {plan.slot_bytes:,} bytes of "
            f"memory, {min(memory_bytes):,} are free for them",
            f"{'activation_checkpointing: auto or ' if trains and recompute == 'never' else ''}"
            "a smaller max_sequence_length needs less",
        )
    return Layout(plan, whole.slot_bytes, deal, ranks, trains)
