"""One run has the same losses and weights, to the last bit, on any number of systems and lanes."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_info

from cstool.kernels import gemm_providers, shared_gemm
from cstool.kernels.gemm_providers import find_vdpbf16ps
from cstool.machine import appliance
from cstool.machine.lanes import Lane, Pace
from cstool.run.result import RunResult
from tests.end_to_end.runs import bits, gpt_params, run_file, write_text
from tests.models import FAMILIES, SPARSITIES

VARIANTS: dict[str, dict[str, Any]] = {
    "clipped": {},
    "not clipped, dropout": {
        "init__precision": {},
        "init__model__dropout_rate": 0.1,
        "init__model__attention_dropout_rate": 0.1,
    },
    "clipped, dropout": {"init__model__dropout_rate": 0.1, "init__model__attention_dropout_rate": 0.1},
    "bfloat16": {"init__precision__host": "bfloat16", "init__model__dropout_rate": 0.1},
}
NUM_CSX = "trainer__init__backend__cluster_config__num_csx"
NEVER = {"init__activation_checkpointing": "never"}
SPARSE: dict[str, dict[str, Any]] = {
    "static": {"init__sparsity": SPARSITIES["static"]},
    "gmp, not clipped": {"init__precision": {}, "init__sparsity": SPARSITIES["gmp"]},
    "set": {"init__sparsity": SPARSITIES["set"]},
    "rigl": {"init__sparsity": SPARSITIES["rigl"], "init__model__dropout_rate": 0.1},
    "rigl, not clipped": {"init__sparsity": SPARSITIES["rigl"], "init__precision": {}},
    "dropconnect": {"init__sparsity": SPARSITIES["dropconnect"]},
    "rigl, bfloat16": {"init__sparsity": SPARSITIES["rigl"], "init__precision__host": "bfloat16"},
    "rigl, experts": {"init__sparsity": SPARSITIES["rigl"], "init__model__moe": {"num_experts": 6, "top_k": 2}},
    "dropconnect, bfloat16": {"init__sparsity": SPARSITIES["dropconnect"], "init__precision__host": "bfloat16"},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "train", 150)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_bits_do_not_depend_on_num_csx_or_lanes(tmp_path, data, variant):
    expected = None
    # 12 grains: on 8 systems some have two, on more than 12 some have none.
    for num_csx, lanes in [(1, 1), (1, 2), (1, 3), (2, 2), (3, 1), (4, 3), (6, 2), (8, 3), (12, 2), (16, 1), (48, 2)]:
        file = gpt_params(tmp_path / f"{num_csx}-{lanes}", data, **VARIANTS[variant])
        found = bits(run_file(file, lanes=lanes, **{NUM_CSX: num_csx}))
        expected = expected or found
        assert found == expected, f"num_csx {num_csx}, {lanes} lanes"


def test_the_bits_do_not_depend_on_the_thread_nor_on_a_run_beside_it(tmp_path, data, monkeypatch):
    """BLAS must not have two threads: for some CPUs it sums in another order then."""
    seen, forward = set(), Lane.forward

    def look(lane: Lane, pace: Pace) -> None:
        seen.update(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")
        forward(lane, pace)

    def train(name: str, steps: int) -> tuple[list[str], str]:
        changes = {"init__loop": {"max_steps": steps}, "init__checkpoint": {"steps": steps}}
        return bits(run_file(gpt_params(tmp_path / name, data, **changes), lanes=2))

    monkeypatch.setattr(Lane, "forward", look)
    expected = train("here", 4)
    assert train("here again", 4) == expected
    with ThreadPoolExecutor(2) as threads:
        longer = threads.submit(train, "in a thread", 4)
        threads.submit(train, "beside it", 1).result()
        assert longer.result() == expected
    assert seen == {1}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_bits_of_no_family_depend_on_num_csx_or_lanes(tmp_path, data, family, precision):
    """Two layers, dropout and clipping; 4 grains to a batch."""
    model = {"dropout_rate": 0.1, "attention_dropout_rate": 0.1, **FAMILIES[family]}
    changes = {f"init__model__{key}": value for key, value in model.items()} | {"init__precision__host": precision}
    found = []
    for num_csx, lanes in [(1, 1), (2, 2), (4, 1), (4, 2)]:
        loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(data), "batch_size": 16}
        changes |= {
            "init__loop": {"max_steps": 2},
            "init__checkpoint": {"steps": 2},
            "fit": {"train_dataloader": loader},
        }
        file = gpt_params(tmp_path / f"{num_csx}-{lanes}", data, **changes)
        found.append(bits(run_file(file, lanes=lanes, **{NUM_CSX: num_csx})))
    assert found == [found[0]] * 4
    assert len({*found[0][0]}) == 2


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_bits_of_a_grain_that_is_alone_do_not_depend_on_the_threads_that_share_it(
    tmp_path, data, monkeypatch, precision
):
    monkeypatch.setattr(shared_gemm, "SHARED_FLOPS", 1)
    loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(data), "batch_size": 1}
    changes = {"init__precision__host": precision, "fit": {"train_dataloader": loader}}
    found = [bits(run_file(gpt_params(tmp_path / str(n), data, **changes), lanes=n)) for n in (1, 2, 3, 5)]
    assert found == [found[0]] * 4
    assert len({*found[0][0]}) > 1


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2"])
def test_the_bits_of_our_own_products_depend_on_no_number_of_systems_lanes_or_threads(
    tmp_path, data, monkeypatch, family
):
    if (own := find_vdpbf16ps()).gemm is None:
        pytest.skip(own.reason)
    monkeypatch.setattr(gemm_providers, "found_providers", lambda _: iter([own]))
    monkeypatch.setattr(gemm_providers, "speed_against_float32", lambda _: 2.0)
    monkeypatch.setattr(shared_gemm, "SHARED_FLOPS", 1)
    changes: dict[str, Any] = {f"init__model__{key}": value for key, value in FAMILIES[family].items()}
    changes |= {"init__precision__host": "bfloat16"}
    for batch_size, runs in (16, [(1, 1), (2, 2), (4, 3)]), (1, [(1, 1), (1, 2), (1, 3)]):
        loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(data), "batch_size": batch_size}
        changes |= {"fit": {"train_dataloader": loader}}
        found = []
        for num_csx, lanes in runs:
            file = gpt_params(tmp_path / f"{batch_size}-{num_csx}-{lanes}", data, **changes)
            found.append(bits(run_file(file, lanes=lanes, **{NUM_CSX: num_csx})))
        assert found == [found[0]] * 3
        assert len({*found[0][0]}) > 1


@pytest.mark.parametrize("family", ["gpt2", "gemma2"])
def test_the_bits_do_not_depend_on_waves(tmp_path, data, monkeypatch, family):
    model = {f"init__model__{key}": value for key, value in FAMILIES[family].items()} | NEVER
    whole = bits(run_file(gpt_params(tmp_path / "whole", data, **model)))
    probe = run_file(gpt_params(tmp_path / "probe", data, **model)).memory_bytes["activations"]
    for slots, num_csx in [(1, 24), (5, 3), (8, 1)]:
        monkeypatch.setattr(appliance, "activation_budget_bytes", lambda *_, slots=slots: probe * slots // 12)
        result = run_file(gpt_params(tmp_path / str(slots), data, **model), lanes=2, **{NUM_CSX: num_csx})
        assert result.memory_bytes["activations"] < probe
        assert bits(result) == whole


@pytest.mark.parametrize("variant", SPARSE)
def test_the_bits_of_sparse_training_depend_on_neither_num_csx_nor_lanes_nor_waves(
    tmp_path, data, monkeypatch, variant
):
    """4 grains to a batch; where masks change, they do so after steps 2 and 4, or after each."""
    loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(data), "batch_size": 16}
    changes = {**SPARSE[variant], **NEVER, "fit": {"train_dataloader": loader}}

    def found(name: str, num_csx: int, lanes: int) -> RunResult:
        return run_file(gpt_params(tmp_path / name, data, **changes), lanes=lanes, **{NUM_CSX: num_csx})

    expected = found("straight", 1, 1)
    assert len({*expected.losses}) == 4
    for num_csx, lanes in [(1, 2), (2, 2), (8, 1)]:
        assert bits(found(f"{num_csx}-{lanes}", num_csx, lanes)) == bits(expected), f"num_csx {num_csx}, {lanes} lanes"
    whole = expected.memory_bytes["activations"]
    for slots in (1, 3):
        with monkeypatch.context() as patch:
            patch.setattr(appliance, "activation_budget_bytes", lambda *_, slots=slots: whole * slots // 4)
            waves = found(f"waves-{slots}", 1, 2)
        assert waves.memory_bytes["activations"] < whole
        assert bits(waves) == bits(expected), f"{slots} grains at a time"


@pytest.mark.parametrize("variant", [*VARIANTS, *SPARSE])
def test_the_bits_do_not_depend_on_what_is_recomputed(tmp_path, data, monkeypatch, variant):
    """4 grains to a batch, three layers, of which two run forward again."""
    loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(data), "batch_size": 16}
    changes: dict[str, Any] = {
        **{**VARIANTS, **SPARSE}[variant],
        "init__model__num_hidden_layers": 3,
        "fit": {"train_dataloader": loader},
    }

    def found(name: str, choice: str, num_csx: int, lanes: int) -> RunResult:
        file = gpt_params(tmp_path / name, data, **changes, init__activation_checkpointing=choice)
        return run_file(file, lanes=lanes, **{NUM_CSX: num_csx})

    expected = found("kept", "never", 1, 1)
    assert expected.recomputed is None
    for num_csx, lanes in [(1, 1), (8, 2), (1, 3)]:
        result = found(f"{num_csx}-{lanes}", "always", num_csx, lanes)
        assert bits(result) == bits(expected), f"num_csx {num_csx}, {lanes} lanes"
        assert result.recomputed is not None
        assert result.recomputed.layers == 2
        saved = result.recomputed.whole_grain_bytes - result.recomputed.grain_bytes
        assert expected.memory_bytes["activations"] - result.memory_bytes["activations"] == 4 * saved
        assert result.streamed_bytes_per_step > expected.streamed_bytes_per_step
    kept, recomputed = (result.memory_bytes["activations"] for result in (expected, result))
    # A byte less than all takes: the logits are not kept, the activations are.
    for budget, waves in [(kept, 1), (kept - 1, 1), (recomputed, 1), (recomputed - 1, 2), (recomputed // 4, 4)]:
        with monkeypatch.context() as patch:
            patch.setattr(appliance, "activation_budget_bytes", lambda *_, budget=budget: budget)
            result = found(f"budget-{budget}", "auto", 8, 2)
        assert ((result.recomputed is None), result.waves) == (budget >= kept - 1, waves)
        assert bits(result) == bits(expected), f"{budget} bytes"


def test_the_losses_fall(tmp_path, data):
    losses = run_file(gpt_params(tmp_path, data, init__loop={"max_steps": 20})).losses
    assert losses[0] == pytest.approx(4.1, abs=0.1)  # about ln 64, what a model that knows nothing has
    assert losses[-1] < 3.0
