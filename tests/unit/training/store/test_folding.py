"""Adapters of tables, of tied output layers and with magnitudes, folded: what they stand for, to one rounding."""

from pathlib import Path

import numpy as np
import pytest

from cstool.training.store import ADAPTERS, CheckpointReader, Folded, adapters_of, merge_adapters, untied_by
from cstool.training.store import folding as module
from tests.models import decoder_params, encoder_decoder_params
from tests.unit.training.store.test_adapters import write

GENERATOR = np.random.default_rng(6)
TABLE, HEAD, OTHER = "x.word_embeddings", "lm_head", "y.word_embeddings"
WORDS = GENERATOR.standard_normal((7, 4), np.float32)
A, B = GENERATOR.standard_normal((7, 2), np.float32), GENERATOR.standard_normal((4, 2), np.float32)
HEAD_A, HEAD_B = GENERATOR.standard_normal((2, 4), np.float32), GENERATOR.standard_normal((7, 2), np.float32)
OF_TABLE = {f"model.{TABLE}.lora_embedding_A": A, f"model.{TABLE}.lora_embedding_B": B}
OF_HEAD = {f"model.{HEAD}.lora_A": HEAD_A, f"model.{HEAD}.lora_B": HEAD_B}
TABLE_SUM = WORDS + 0.5 * (A.astype(np.float64) @ B.T)
HEAD_SUM = WORDS + 0.5 * (HEAD_B.astype(np.float64) @ HEAD_A)


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch) -> None:
    monkeypatch.setattr(module, "_FOLDED_ROWS", 3)


def checkpoint(path: Path, *parts: dict, model: dict | None = None, scale: float = 0.5) -> Path:
    """A checkpoint of adapters with all weights, whose output layer and second table are the first table."""
    tensors = {f"model.{TABLE}.weight": WORDS, **{name: array for part in parts for name, array in part.items()}}
    modules = dict.fromkeys(name.removeprefix("model.").rpartition(".lora_")[0] for name in tensors if "lora_" in name)
    params = {"trainer": {"init": {"model": model or decoder_params().dump(), "callbacks": [{"Lora": {}}]}}}
    values = {ADAPTERS: {"scales": dict.fromkeys(modules, scale)}, "__metadata__": [{"version": "1", "params": params}]}
    links = {f"model.{name}.weight": f"model.{TABLE}.weight" for name in (HEAD, OTHER)}
    return write(path, tensors, values, links)


@pytest.mark.parametrize(
    ("parts", "table", "head"),
    [([OF_TABLE], TABLE_SUM, WORDS), ([OF_HEAD], WORDS, HEAD_SUM), ([OF_TABLE, OF_HEAD], TABLE_SUM, HEAD_SUM)],
)
def test_a_table_and_its_output_layer_are_two_weights_once_they_differ(tmp_path, parts, table, head):
    """A second table of that name is tied to the first all the same."""
    merge_adapters(checkpoint(tmp_path / "a.mdl", *parts), tmp_path / "b.mdl")
    with CheckpointReader(tmp_path / "b.mdl") as state:
        assert state.tensor_names() == [f"model.{TABLE}.weight", f"model.{HEAD}.weight"]
        assert state.link_of(f"model.{OTHER}.weight") == f"model.{TABLE}.weight"
        for name, total in ((TABLE, table), (HEAD, head)):
            np.testing.assert_array_equal(state.read(f"model.{name}.weight"), total.astype(np.float32))
        init = state.values()["__metadata__"][-1]["params"]["trainer"]["init"]
    assert (init["model"]["share_embedding_weights"], init["callbacks"]) == (False, None)


def test_a_factor_that_only_tied_logits_have_goes_into_the_output_layer(tmp_path):
    model = encoder_decoder_params().dump()
    path = checkpoint(tmp_path / "a.mdl", OF_TABLE, model=model)
    with CheckpointReader(path) as state:
        folded = Folded(state, adapters_of(state)["scales"])
        found = folded.read(f"model.{HEAD}.weight")
    np.testing.assert_array_equal(found, (8**-0.5 * WORDS.astype(np.float64)).astype(np.float32))


def test_where_nothing_is_beside_a_table_its_output_layer_stays_tied(tmp_path):
    inner = {"model.q.weight": WORDS, "model.q.lora_A": HEAD_A, "model.q.lora_B": HEAD_B}
    with CheckpointReader(checkpoint(tmp_path / "a.mdl", inner)) as state:
        assert untied_by(state) is None
    with CheckpointReader(checkpoint(tmp_path / "b.mdl", OF_HEAD)) as state:
        assert untied_by(state) == f"{HEAD}.weight"


def test_magnitudes_are_the_lengths_of_the_rows_and_of_the_columns_of_a_table(tmp_path):
    of_rows, of_columns = (GENERATOR.uniform(1, 2, size).astype(np.float32) for size in (7, 4))
    parts = {f"model.{HEAD}.lora_magnitude_vector": of_rows, f"model.{TABLE}.lora_magnitude_vector": of_columns}
    with CheckpointReader(checkpoint(tmp_path / "a.mdl", OF_TABLE, OF_HEAD, parts)) as state:
        folded = Folded(state, adapters_of(state)["scales"])
        assert folded.tensor_names() == [f"model.{TABLE}.weight", f"model.{HEAD}.weight"]
        for name, total, axis, wanted in ((TABLE, TABLE_SUM, 0, of_columns), (HEAD, HEAD_SUM, 1, of_rows)):
            found = folded.read(f"model.{name}.weight")
            lengths = np.linalg.norm(total, axis=axis, keepdims=True)
            expected = (total * np.expand_dims(wanted.astype(np.float64), axis) / lengths).astype(np.float32)
            np.testing.assert_array_max_ulp(found, expected, 1)
            np.testing.assert_allclose(np.linalg.norm(found, axis=axis), wanted, rtol=1e-6)
            np.testing.assert_array_equal(folded.read(f"model.{name}.weight", None, 2, 5), found[2:5])
