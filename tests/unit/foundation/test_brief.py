"""What holds much shows little: one line, and a small table in a notebook."""

import pytest

from cstool.foundation.brief import Brief
from cstool.training.run.result import RunResult
from tests.unit.model.ir.artifacts import pipelined_artifact, streaming_artifact
from tests.unit.plan.estimation.requests import estimator, gpt


class Named(Brief):
    def facts(self) -> dict[str, str]:
        return {"name": "<b>&", "size": "3 m"}


def test_facts_are_a_line_and_a_table_in_which_nothing_is_html() -> None:
    assert repr(Named()) == "<Named: name <b>&, size 3 m>"
    rows = "<tr><th>name</th><td>&lt;b&gt;&amp;</td></tr><tr><th>size</th><td>3 m</td></tr>"
    assert Named()._repr_html_() == f"<table><caption>Named</caption>{rows}</table>"


@pytest.mark.parametrize("make", [streaming_artifact, pipelined_artifact])
def test_an_artifact_says_what_was_compiled_for_what(make) -> None:
    artifact = make()
    parts = (
        f"model {artifact.graph.name}, {artifact.graph.parameter_count:,} parameters",
        f"systems {artifact.num_csx} x {artifact.system.name}",
        f"mode {artifact.mode.value}",
        f"batch {artifact.batch_size:,} samples, {artifact.micro_batch_size:,} at a time on a system",
        f"step {artifact.step_s:.3g} s modelled",
        f"PEs that work {artifact.active_pes:,}",
        f"fullest PE {artifact.sram_used_bytes:,} of {artifact.system.pe.sram_bytes:,} bytes",
    )
    assert repr(artifact) == f"<Artifact: {', '.join(parts)}>"


def test_an_estimate_says_what_a_step_comes_to() -> None:
    found = estimator(gpt(), "cs2", tokens="1B").at(2)
    batch = f"batch {found.batch_size:,} samples, step {found.step_s:.3g} s modelled"
    begin = f"<Estimate: model {found.artifact.graph.name}, systems 2 x cs2, {batch}, {found.band.text(found.step_s)}"
    rates = f"throughput {found.tokens_per_s:,.0f} tokens/s, of peak {found.share_of_peak:.1%}, bound by {found.bound}"
    assert repr(found) == f"{begin}, {rates}, for 1,000,000,000 tokens {found.days:,.3g} days>"


def test_a_result_says_how_far_it_came_whatever_the_steps() -> None:
    long = RunResult(
        "train",
        "gpt2",
        1000,
        first_step=1,
        last_step=90_000,
        losses=[2.0] * 90_000,
        median_step_s=0.5,
        evaluations=[{"loss": 1.5, "step": 90_000}],
        checkpoints=["a/checkpoint_90000.mdl"],
    )
    assert repr(long) == (
        "<RunResult: mode train, model gpt2, 1,000 parameters, steps 1 to 90,000, 0.5 s each on this host (median), "
        "loss 2.00000 to 2.00000, held out loss 1.50000 after step 90,000, checkpoint a/checkpoint_90000.mdl>"
    )
    assert repr(RunResult("train", "gpt2", 1)) == "<RunResult: mode train, model gpt2, 1 parameters, steps none>"
