"""A step on so many GPUs: split over tensors, stages and samples; and the split that is fastest.

A pipeline of p stages takes m micro-batches, forward and backward in turn (1F1B); with v parts of each stage dealt to
the GPUs in turns (interleaved), filling and draining take (p - 1) / v micro-batches, and activations are sent v times
as often.

Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC '21,
arXiv 2104.04473, for the schedule; Korthikanti et al., arXiv 2205.05198, for the memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from cstool.model.batch_split import divisors
from cstool.plan.timing.gpu.layer import OPERAND_BYTES, GpuModel, head_s, kept_bytes, layer_times
from cstool.plan.timing.gpu.system import GpuSystem

RECOMPUTE = ("none", "attention", "all")
WEIGHT_BYTES, STATE_BYTES = 2 + 4, 12
"""sizes of a weight with its sum of gradients; of its master copy and two numbers of Adam's, 32 bits each"""
UPDATE_BYTES = 30
"""bytes that an update of a weight moves: the gradient, three numbers in and out, the weight of 16 bits"""
SPARE_BYTES = 4e9
"""memory of a GPU for its libraries, buffers and fragments (chosen)"""


@dataclass(frozen=True)
class Split:
    """How a model and its samples lie on GPUs.

    Args:
        tensor: GPUs that share each layer
        stages: of the pipeline
        data: copies of that
        micro_batch: samples of a copy at a time
        parts: of a stage, that take turns
        recompute: activations that backward computes again: "none", "attention" or "all"
        shares_sequences: whether GPUs that share layers share the tokens between products, too
    """

    tensor: int
    stages: int
    data: int
    micro_batch: int
    parts: int = 1
    recompute: str = "attention"
    shares_sequences: bool = True

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.tensor * self.stages * self.data


@dataclass(frozen=True)
class GpuStep:
    """A step on GPUs. All of it is modelled.

    Args:
        split: how
        step_s: time [s]
        memory_bytes: of the fullest GPU
        bubble: share of the step in which stages have no micro-batch
    """

    split: Split
    step_s: float
    memory_bytes: float
    bubble: float


def split_step(gpu: GpuSystem, model: GpuModel, batch_size: int, split: Split) -> GpuStep:
    """Return the step time on the GPUs of a split, whether or not it fits their memory."""
    micro_batches = batch_size // split.data // split.micro_batch
    times = layer_times(gpu, model, split.micro_batch, split.tensor, split.shares_sequences)
    again = {"none": 0.0, "attention": times.attention, "all": times.forward + times.talk}[split.recompute]
    of_layer = times.forward + times.backward + again + 2 * times.talk + times.talk_again
    layers = -(-model.layers // split.stages)
    # The last stage has the vocabulary, too, and holds the others up.
    stage_s = layers * of_layer + head_s(gpu, model, split.micro_batch, split.tensor, split.shares_sequences)
    sent_s = 0.0
    if split.stages > 1:
        link = gpu.near if split.tensor * split.stages <= gpu.near.gpus else gpu.far
        sent = OPERAND_BYTES * split.micro_batch * model.tokens * model.hidden / split.tensor
        sent_s = 2 * split.parts * link.message_s(sent)
    bubble = (split.stages - 1) / split.parts
    pipeline_s = (micro_batches + bubble) * (stage_s + sent_s)
    weights = model.parameters / (split.tensor * split.stages)
    between = gpu.near if split.gpus <= gpu.near.gpus else gpu.far
    # Each copy updates a share of the weights: gradients are scattered, and weights gathered again.
    exchange_s = 2 * between.gather_s(OPERAND_BYTES * weights, split.data)
    step_s = pipeline_s + exchange_s + gpu.moved_s(UPDATE_BYTES * weights / split.data)
    return GpuStep(split, step_s, memory_bytes(model, batch_size, split), bubble / (micro_batches + bubble))


def memory_bytes(model: GpuModel, batch_size: int, split: Split) -> float:
    """Memory of the fullest GPU, of the first stage; the state of the optimizer is shared by the copies [bytes].

    The first stage has as many micro-batches in flight as there are stages; with parts (p - 1) / (p v) more.
    """
    weights = model.parameters / (split.tensor * split.stages)
    state = WEIGHT_BYTES * weights + STATE_BYTES * weights / split.data
    micro_batches = batch_size // split.data // split.micro_batch
    layers = -(-model.layers // split.stages)
    in_flight = min(micro_batches, split.stages)
    more = 1 + (split.stages - 1) / (split.stages * split.parts) if split.parts > 1 else 1
    each = model, split.micro_batch, split.tensor
    kept = kept_bytes(*each, split.recompute, split.shares_sequences)
    working = kept_bytes(*each, "none", split.shares_sequences) if split.recompute != "none" else 0
    return state + layers * in_flight * more * kept + working


def splits(gpu: GpuSystem, model: GpuModel, batch_size: int, gpus: int) -> Iterator[Split]:
    """Yield the splits of so many GPUs: tensors within a host, whole layers to a stage, whole samples to a copy."""
    for tensor in divisors(gpus):
        if tensor > gpu.near.gpus or model.heads % tensor or model.inside % tensor:
            continue
        for stages in divisors(gpus // tensor):
            data = gpus // tensor // stages
            if stages > model.layers or batch_size % data:
                continue
            samples = batch_size // data
            for micro_batch in (size for size in (1, 2, 4, 8, 16) if samples % size == 0):
                for parts in _parts(model.layers, stages, samples // micro_batch):
                    for recompute in RECOMPUTE:
                        yield Split(tensor, stages, data, micro_batch, parts, recompute)


def _parts(layers: int, stages: int, micro_batches: int) -> list[int]:
    """Parts of a stage that can take turns: whole layers, and micro-batches that the stages divide."""
    if stages == 1 or layers % stages or micro_batches % stages:
        return [1]
    return [parts for parts in divisors(layers // stages) if parts <= 8]


def best_split(gpu: GpuSystem, model: GpuModel, batch_size: int, gpus: int) -> GpuStep | None:
    """Return the fastest step whose memory fits; None if none does."""
    room = gpu.memory_bytes - SPARE_BYTES
    fits = (each for each in splits(gpu, model, batch_size, gpus) if memory_bytes(model, batch_size, each) <= room)
    return min((split_step(gpu, model, batch_size, each) for each in fits), key=lambda step: step.step_s, default=None)
