"""Training on a mixture of data sets."""

from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.runs import bits, gpt_params, run_file, write_text

NUM_CSX = "trainer__init__backend__cluster_config__num_csx"
STEPS = "trainer__init__loop__max_steps"


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("mixture")
    return [write_text(folder / name, count, seed=seed) for name, count, seed in (("a", 40, 0), ("b", 90, 1))]


def params_of(folder: Path, folders: list[Path], *, shuffle: bool, weights=(0.7, 0.3)) -> Path:
    parts = [{"data_dir": str(data), "weight": weight} for data, weight in zip(folders, weights, strict=True)]
    loader: dict[str, Any] = {"data_processor": "GptHDF5MapDataProcessor", "batch_size": 48, "mixture": parts}
    return gpt_params(
        folder,
        folders[0],
        fit__train_dataloader={**loader, "shuffle": shuffle},
        fit__val_dataloader=loader,
        init__checkpoint={"steps": 3},
        init__loop={"max_steps": 7},
    )


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_mixture_has_the_same_bits_on_any_number_of_systems_and_after_a_stop(tmp_path, folders, shuffle):
    expected = bits(run_file(params_of(tmp_path / "whole", folders, shuffle=shuffle)))
    for num_csx, lanes in [(2, 1), (4, 3)]:
        file = params_of(tmp_path / str(num_csx), folders, shuffle=shuffle)
        assert bits(run_file(file, lanes=lanes, **{NUM_CSX: num_csx})) == expected
    file = params_of(tmp_path / "stopped", folders, shuffle=shuffle)
    begun = run_file(file, **{STEPS: 4})
    losses, checkpoint = bits(run_file(file))
    assert ([loss.hex() for loss in begun.losses] + losses, checkpoint) == expected


def test_what_has_no_weight_is_not_read(tmp_path, folders):
    alone = run_file(params_of(tmp_path / "alone", folders, shuffle=False, weights=(0, 1)))
    file = gpt_params(tmp_path / "b", folders[1], init__checkpoint={"steps": 3}, init__loop={"max_steps": 7})
    assert alone.losses != run_file(file).losses  # interleaving one data set leaves its order, shuffling does not
    plain = gpt_params(
        tmp_path / "c",
        folders[1],
        fit__train_dataloader__shuffle=False,
        init__checkpoint={"steps": 3},
        init__loop={"max_steps": 7},
    )
    assert bits(alone) == bits(run_file(plain))
