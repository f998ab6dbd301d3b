"""Every optimizer trains in memory, in a file and interrupted with the same bits; its curve is that of a slow twin."""

import pytest

from tests.end_to_end.runs import bits, gpt_params, run_file, write_text
from tests.models import SPARSITIES

NUM_CSX = "trainer__init__backend__cluster_config__num_csx"
OPTIMIZERS = {
    "Lion": {"Lion": {"learning_rate": 1e-3, "weight_decay": 0.1}},
    "Adafactor": {"Adafactor": {"learning_rate": 1e-2, "weight_decay": 0.1}},
}
IN_FILE = {"init__memoryx": {"store": "file", "memory": "32MiB"}}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("text") / "train", 150)


@pytest.mark.parametrize(("optimizer", "sparsity"), [("Lion", None), ("Lion", SPARSITIES["rigl"]), ("Adafactor", None)])
@pytest.mark.parametrize("norm", [{"max_gradient_norm": 1.0}, {}], ids=["clipped", "not clipped"])
def test_the_bits_do_not_depend_on_systems_store_or_interruption(tmp_path, data, optimizer, sparsity, norm):
    changes = {"init__optimizer": OPTIMIZERS[optimizer], "init__precision": norm}
    changes |= {"init__sparsity": sparsity} if sparsity else {}
    straight = run_file(gpt_params(tmp_path / "straight", data, **changes))
    file = gpt_params(tmp_path / "stopped", data, **changes, **IN_FILE)
    begun = run_file(file, lanes=2, trainer__init__loop__max_steps=2)
    ended = run_file(file, lanes=3, **{NUM_CSX: 2})
    losses, digest = bits(straight)
    assert (bits(begun)[0] + bits(ended)[0], bits(ended)[1]) == (losses, digest)
    assert straight.losses[-1] < straight.losses[0]
