"""`cstool run --executor fabric`: beside a run of this host, and runs and models that are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.end_to_end.test_infer import digits_params

DECAY = "{initial_learning_rate: 0.02, end_learning_rate: 0.0005, total_iters: 660}"
RATE = {"init.schedulers": f"[{{CosineDecayLR: {DECAY}}}]"}
"""So small that roundings do not grow from step to step: at 0.05, with 8 samples, even two kernels of one host's BLAS
differ by 3e-5 after 18 steps."""
LOSSES = 2e-6
"""Largest difference of a loss after 20 steps. One loss is off by some roundings of its logits, 1e-6 of a sum of 784
products; the weights of both runs drift apart by the roundings of gradients, 6e-8 of a step each."""


@pytest.fixture
def run(cstool, tmp_path):
    params = digits_params(tmp_path)

    def runs(name: str, *flags: str, batch: int = 8, hidden: str = "[8]", **sets: Any) -> Any:
        values = {"init.model.hidden_sizes": hidden, "fit.train_dataloader.batch_size": batch, **sets}
        asked = [f"trainer.{key}={value}" for key, value in values.items()]
        return cstool("run", "--params", params, "--model_dir", tmp_path / name, *flags, "--set", *asked)

    return runs


@pytest.mark.takes("a step is simulated")
def test_steps_and_an_evaluation_are_those_of_this_host(run):
    flags = "--mode", "train_and_eval", "--num_steps", "2", "--eval_steps", "1", "--json"
    loaders = {"fit.val_dataloader.batch_size": 10}
    fabric, host = (run(name, *flags, *more, **loaders) for name, more in (("a", ["--executor", "fabric"]), ("b", [])))
    assert "Batches of 8 on the simulated fabric: 8 x 1 PEs of wse3, 8 samples to each." in fabric.stderr
    found, expected = fabric.document, host.document
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=0, atol=1e-6)
    assert found["losses"][0] != found["losses"][1]
    (one,), (other,) = found["evaluations"], expected["evaluations"]
    assert one["accuracy"] == other["accuracy"]
    np.testing.assert_allclose(one["loss"], other["loss"], rtol=0, atol=1e-6)
    # The checkpoint is as any: this host goes on from it.
    more = run("a", "--num_steps", "1", "--json").document
    np.testing.assert_allclose(more["losses"], run("b", "--num_steps", "1", "--json").document["losses"], atol=1e-6)


@pytest.mark.lab
@pytest.mark.takes("20 steps are simulated")
@pytest.mark.parametrize("zeros", [0.0, 0.5])
def test_twenty_steps_are_those_of_this_host(run, zeros):
    sets = RATE if not zeros else {**RATE, "init.sparsity": f"{{algorithm: static, sparsity: {zeros}}}"}
    flags = "--num_steps", "20", "--json"
    fabric = run("a", *flags, "--executor", "fabric", hidden="[8,6]", **sets).document["losses"]
    host = run("b", *flags, hidden="[8,6]", **sets).document["losses"]
    assert len(fabric) == 20
    assert fabric[-1] < fabric[0]
    np.testing.assert_allclose(fabric, host, rtol=0, atol=LOSSES)


@pytest.mark.parametrize(
    ("flags", "sets", "said"),
    [
        (
            ["--mode", "infer"],
            {},
            "--mode: must be train, eval, train_and_eval or eval_all with --executor fabric, got infer",
        ),
        (["--trace", "t.json"], {}, "--trace: must be left out with --executor fabric, got t.json"),
        (
            ["--precision", "bfloat16"],
            {},
            "TMP/digits.yaml: precision must be float32 with --executor fabric, got bfloat16\n"
            "hint: --precision float32",
        ),
        (["--num_csx", "2"], {}, "fc_mnist: must have one CSX to become CSL, got 2\nhint: a smaller batch_size may do"),
        (
            [],
            {"init.model.activation_fn": "gelu"},
            "fc_mnist: fc_layers.0.activation must be of function relu to become CSL, got gelu\n"
            "hint: there is CSL for fc_mnist with relu and without dropout",
        ),
        (
            [],
            {"init.model.dropout": 0.1},
            "fc_mnist: fc_layers.0.activation must be of dropout 0.0 to become CSL, got 0.1\n"
            "hint: there is CSL for fc_mnist with relu and without dropout",
        ),
        (
            [],
            {"init.model.hidden_sizes": "[3000]"},
            "fc_layers.0: must fit 43,760 bytes of a PE beside the code, needs 142,740, 98,980 more "
            "(8 x 1 PEs, 8 tokens to each)\n"
            "hint: narrower hidden_sizes, a smaller batch_size, or a larger rectangle",
        ),
    ],
)  # fmt: skip
def test_refused(run, flags, sets, said):
    outcome = run("a", "--executor", "fabric", "--num_steps", "1", *flags, **sets)
    assert (outcome.code, outcome.stderr.partition("error: ")[2]) == (2, f"{said}\n")


# --- a GPT ---

LOSS = 2e-6
"""Largest difference of a GPT's loss: a logarithm of 256 classes, near 5.5, of which a unit in the last place is 5e-7;
the logits have errors of that size. Gradients are within 1e-6 of their largest, and a step of AdamW is 3e-3 at most, so
weights drift apart by some 3e-9 a step, but for those whose gradient is nearly 0."""


@pytest.fixture
def run_block(cstool, tmp_path):
    """Run `params/gpt_block.yaml` on a text of its own."""
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{number} and {number} are {2 * number}. " for number in range(400)))
    prepared = "--sequence_length", 8, "--val_fraction", 0.2
    assert cstool("data", "prepare", "text", text, "--output", tmp_path / "data", *prepared).code == 0
    loader = f"{{data_processor: GptHDF5MapDataProcessor, data_dir: {tmp_path}/data/val, batch_size: 2}}"

    def runs(name: str | Path, *flags: object, **sets: Any) -> Any:
        loaders = {"fit.train_dataloader.data_dir": tmp_path / "data/train", "fit.val_dataloader": loader}
        asked = [f"trainer.{key}={value}" for key, value in {**loaders, **sets}.items()]
        return cstool(
            "run", "--params", "params/gpt_block.yaml", "--model_dir", tmp_path / name, *flags, "--set", *asked
        )

    return runs


@pytest.mark.takes("steps of a block are simulated")
def test_a_gpt_trains_as_on_this_host(run_block):
    flags = "--mode", "train_and_eval", "--num_steps", "4", "--eval_steps", "2", "--json"
    batch = {"fit.train_dataloader.batch_size": 3}
    fabric, host = (
        run_block(name, *flags, *more, **batch) for name, more in (("a", ["--executor", "fabric"]), ("b", []))
    )
    assert "Samples, one at a time, on the simulated fabric: 8 x 1 PEs of wse3, 8 tokens to each." in fabric.stderr
    found, expected = fabric.document, host.document
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=0, atol=LOSS)
    assert found["losses"][-1] < found["losses"][0]
    (one,), (other,) = found["evaluations"], expected["evaluations"]
    assert one["accuracy"] == other["accuracy"]
    np.testing.assert_allclose(one["loss"], other["loss"], rtol=0, atol=LOSS)


@pytest.mark.takes("steps of a block are simulated")
def test_a_gpt_goes_on_from_a_checkpoint_with_the_same_bits(run_block, cstool, tmp_path):
    flags, often = ("--executor", "fabric", "--json", "--num_steps"), {"init.checkpoint.steps": 1}
    whole = run_block("whole", *flags, "3", **often).document["losses"]
    parts = [run_block("parts", *flags, number, **often).document["losses"] for number in (2, 1)]
    assert [*parts[0], *parts[1]] == whole
    paths = [tmp_path / name / "checkpoint_3.mdl" for name in ("whole", "parts")]
    assert "60 tensors compared, 0 differ" in cstool("checkpoint", "diff", *paths).stdout


@pytest.mark.lab
@pytest.mark.takes("steps of a block are simulated")
@pytest.mark.parametrize(
    "sets",
    [{"init.sparsity": "{algorithm: static, sparsity: 0.5}"}, {"init.frozen": "first:1"}],
    ids=["sparse", "frozen"],
)
def test_sparse_and_frozen_weights_of_a_gpt(run_block, sets):
    flags = "--num_steps", "3", "--json"
    fabric, host = (
        run_block(name, *flags, *more, **sets) for name, more in (("a", ["--executor", "fabric"]), ("b", []))
    )
    np.testing.assert_allclose(fabric.document["losses"], host.document["losses"], rtol=0, atol=LOSS)


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (
            {"init.model.filter_size": 4000},
            "arrays of a PE: must take at most 37,376 bytes, got 66,688, 29,312 more, of which stream 32,000, full "
            "16,000, delta_layers_0_ffn_0_activation 2,000; the widest weights are of "
            "transformer_decoder.layers.0.ffn.ffn.0.linear_layer\n"
            "hint: narrower layers, shorter samples, or more than 8 x 8 PEs",
        ),
        (
            {"init.model.hidden_size": 12},
            "residual.0: features must be as many on each of 8 columns of PEs, got 12",
        ),
        (
            {"init.backend.cluster_config.num_csx": 2, "fit.train_dataloader.batch_size": 2},
            "gpt2: must have one CSX to become CSL, got 2",
        ),
    ],
)  # fmt: skip
def test_a_gpt_that_is_refused(run_block, sets, said):
    outcome = run_block("a", "--executor", "fabric", "--num_steps", "1", **sets)
    assert (outcome.code, outcome.stderr.partition("error: ")[2]) == (2, f"{said}\n")
