"""`cstool run --executor fabric`: beside a run of this host, and runs and models that are refused."""

from typing import Any

import numpy as np
import pytest

from tests.end_to_end.test_infer import digits_params

LOSSES = 1e-5
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
    sparsity = {} if not zeros else {"init.sparsity": f"{{algorithm: static, sparsity: {zeros}}}"}
    flags = "--num_steps", "20", "--json"
    fabric = run("a", *flags, "--executor", "fabric", hidden="[8,6]", **sparsity).document["losses"]
    host = run("b", *flags, hidden="[8,6]", **sparsity).document["losses"]
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
            "fc_layers.0: must fit 44,544 bytes of a PE beside the code, needs 142,740, 98,196 more "
            "(8 x 1 PEs, 8 tokens to each)\n"
            "hint: narrower hidden_sizes, a smaller batch_size, or a larger rectangle",
        ),
    ],
)  # fmt: skip
def test_refused(run, flags, sets, said):
    outcome = run("a", "--executor", "fabric", "--num_steps", "1", *flags, **sets)
    assert (outcome.code, outcome.stderr.partition("error: ")[2]) == (2, f"{said}\n")
