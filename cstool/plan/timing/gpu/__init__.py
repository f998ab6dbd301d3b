"""A training step of a decoder on GPUs, in closed form, for a cluster of them beside one of wafers."""

from cstool.plan.timing.gpu.layer import GpuModel
from cstool.plan.timing.gpu.step import GpuStep, Split, best_split, split_step
from cstool.plan.timing.gpu.system import GpuSystem, load_gpu
