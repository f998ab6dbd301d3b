"""Verdicts made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cstool.training.compare import Amounts, Comparison, Cost, CostRow, Numerics, Quality, Setting, Verdict

ALL_SPARSE = {"forward": "sparse", "delta": "sparse", "gradient": "sparse"}
PARTLY = {"forward": "sparse", "delta": "dense", "gradient": "dense"}


def row(name: str, dense_s: float, sparse_s: float, **changes: Any) -> CostRow:
    """A row of what is dense in both runs."""
    amounts = Amounts(2_000_000, 4096, 12288, dense_s)
    return replace(
        CostRow(name, 1, None, None, None, amounts, replace(amounts, seconds=sparse_s), None, None), **changes
    )


def cost() -> Cost:
    """Two sparse weights of a quarter and a tenth non-zeros, attention, and what is no op."""
    ffn = Amounts(40_000_000, 65536, 98304, 0.040)
    query = Amounts(10_000_000, 16384, 24576, 0.010)
    return Cost(
        rows=(
            CostRow(
                *("transformer_decoder.layers.*.ffn.ffn.0.linear_layer.weight", 2, (256, 64), 0.25, ALL_SPARSE, ffn),
                *(Amounts(10_000_000, 20000, 30000, 0.020), 4.0, 2.5),
            ),
            CostRow(
                *("transformer_decoder.layers.*.self_attn.proj_q_dense_layer.weight", 2, (64, 64), 0.1, PARTLY, query),
                *(Amounts(1_000_000, 2000, 3000, 0.008), 10.0, 1.6),
            ),
            row("attention", 0.020, 0.019),
            row(
                "outside of ops", 0.010, 0.005, ideal=5.0, dense=Amounts(0, 0, 0, 0.010), sparse=Amounts(0, 0, 0, 0.005)
            ),
        ),
        dense_step_seconds=(0.079, 0.080, 0.080, 0.090),
        sparse_step_seconds=(0.050, 0.052, 0.052, 0.060),
        dense_memory_bytes={"weights": 45056, "optimizer_state": 90112, "gradients": 45056, "activations": 10_000_000},
        sparse_memory_bytes={
            "weights": 16000,
            "sparse_patterns": 4000,
            "optimizer_state": 32000,
            "gradients": 16000,
            "activations": 10_000_000,
        },
    )


def comparison(**changes: Any) -> Comparison:
    quality = Quality((4.0, 3.0, 2.5), (4.0, 2.9, 2.25), 2.75, 2.5, 0.25, 0.5, 0.3)
    return replace(Comparison("0.8", 0.22, quality, cost()), **changes)


def numerics(**changes: Any) -> Numerics:
    found = Numerics(
        steps=2,
        mask_changes=False,
        sparse_losses=(4.0, 3.0),
        dense_losses=(4.0, 3.000003),
        loss_differences=(0.0, 1e-6),
        loss_tolerances=(1e-6, 2e-6),
        worst_weight="transformer_decoder.layers.1.ffn.ffn.0.linear_layer.weight",
        gradient_difference=2e-7,
        gradient_tolerance=2e-6,
        mask_difference=0.0,
        mask_tolerance=0.0,
    )
    return replace(found, **changes)


def verdict(**changes: Any) -> Verdict:
    setting = Setting("gpt2", 100_000, 40_960, 3, 600, 24, 128, 2, 1, 4, "x86_64 examplelake", 7, "token")
    return replace(Verdict(setting, numerics(), comparison(), (), ()), **changes)
