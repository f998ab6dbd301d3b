"""Pictures of estimates made by hand: plausible numbers, no compiler."""

from typing import Any

from cstool.plan.pictures.estimate import Busy, EstimatePicture
from cstool.plan.pictures.roofline import Roofline
from cstool.plan.pictures.scaling import Scaling, ScalingPoint, SparsityPoint
from cstool.plan.pictures.step import Breakdown, Part, Row
from cstool.plan.timing.roofline import Load

LAYER = "transformer_decoder.layers.{n}."
KERNELS = {
    f"{LAYER}self_attn.proj_q_dense_layer": 1.0,
    f"{LAYER}self_attn.proj_output_dense_layer": 1.05,
    f"{LAYER}ffn.ffn.0.linear_layer": 1.1,
    f"{LAYER}ffn.ffn.1.linear_layer": 2.0,
    "lm_head": 0.4,
}
"""name -> speed"""
RESOURCES = ("input workers", "MemoryX memory", "MemoryX processors", "SwarmX broadcast", "CSX compute")


def loads(speed: float = 1.0) -> tuple[Load, ...]:
    """Three phases of each kernel, attention, and a step."""
    found = [
        Load(name, phase, 10**15, bytes_, 1 / (speed * factor * share), 12)
        for name, factor in KERNELS.items()
        for phase, bytes_, share in (
            ("forward", 5 * 10**10, 1.0),
            ("delta", 5 * 10**10, 1.2),
            ("gradient", 10**11, 0.9),
        )
    ]
    found += [Load(f"{LAYER}self_attn", phase, 10**14, 0, 0.2, 12) for phase in ("forward", "delta")]
    return (*found, Load("gpt3", "step", 10**17, 6 * 10**12, 150.0))


def roofline(speed: float = 1.0, **changes: Any) -> Roofline:
    given = {
        "io_bytes_per_s": 150e9,
        "peak_flops": 5.07e15,
        "efficiency": 0.757,
        "loads": loads(speed),
        "heading": "Roofline of one system (modelled)",
    }
    return Roofline(**{**given, **changes})


def busy(label: str, step_s: float = 2.0) -> Busy:
    work = {name: 0.45 * number for number, name in enumerate(RESOURCES)}
    return Busy(label, step_s, work)


def breakdown(count: int = 6) -> Breakdown:
    rows = tuple(
        Row(f"kernel {number}", {"forward": Part(10 + number, "compute"), "gradient": Part(20, "egress")})
        for number in range(count)
    )
    whole = sum(row.cycles for row in rows)
    return Breakdown(rows, "The kernels of a step (modelled)", "modelled cycles [%]", whole)


def scaling(*points: tuple[int, float, float], unit: str = "tokens/s") -> Scaling:
    return Scaling(tuple(ScalingPoint(*point) for point in points), unit, "Throughput over systems (modelled)")


SCALING = scaling(*((2**n, 900.0 * 1.9**n, 0.95**n) for n in range(8)))
SPARSITIES = (SparsityPoint(0, 1, 1), SparsityPoint(0.5, 1.5, 1.8), SparsityPoint(0.9, 2.9, 4.4))


def picture(**changes: Any) -> EstimatePicture:
    given = {
        "title": "gpt3, 1,315,723,264 parameters, on 1 x cs2 (modelled)",
        "subtitle": "Batches of 512 samples of 2,048 tokens",
        "roofline": roofline(),
        "busy": (busy("1 system"),),
        "breakdown": breakdown(),
    }
    return EstimatePicture(**{**given, **changes})


WITH_SPARSITIES = {"sparsities": SPARSITIES, "sparsities_heading": "Speedup with sparsity (modelled)"}
PICTURES = {
    "one number of systems": picture(),
    "scaling": picture(scaling=SCALING, busy=(busy("1 system"), busy("128 systems", 3.0))),
    "sparsities": picture(**WITH_SPARSITIES),
    "both": picture(scaling=SCALING, **WITH_SPARSITIES),
    "a step alone": picture(roofline=roofline(loads=loads()[-1:])),
    "slow": picture(roofline=roofline(0.001), scaling=scaling((1, 7e6, 1.0), (2, 3e6, 0.2), (4, 1e6, 0.1))),
    "fast": picture(roofline=roofline(1.7), scaling=scaling((3, 0.4, 1.0), (192, 25.0, 0.97), unit="samples/s")),
    "every number of systems": picture(scaling=scaling(*((n, 5.0 * n**0.9, n**-0.1) for n in range(1, 193)))),
    "one point": picture(scaling=scaling((4, 5.0, 1.0)), sparsities=SPARSITIES[1:2], sparsities_heading="(modelled)"),
}
