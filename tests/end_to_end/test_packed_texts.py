"""Decoders and encoders on samples of several texts that do not see each other."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from cstool.model.graphs import SampleForm, build_graph
from cstool.model.params import ModelParams
from cstool.training.machine.inputs import Batch
from tests.end_to_end.runs import DROPOUT, SEQUENCE, bits, gpt_params, run_file, write_text
from tests.models import FAMILIES, decoder_params, encoder_params
from tests.unit.training.machine.machines import make_appliance

NUM_CSX = "trainer__init__backend__cluster_config__num_csx"
STEPS = "trainer__init__loop__max_steps"
S, LENGTHS = 24, ((9, 1, 14), (24,), (5, 11), (3, 4, 5, 6))
"""tokens of a sample, and of the texts of some; what is left is padding"""


def packed(lengths, length: int, *, vocab: int, seed: int = 0) -> np.ndarray:
    """Samples (n, 5, S) in the vendor's layout: texts back to back, some of whose labels do not count."""
    rng = np.random.default_rng(seed)
    samples = np.zeros((len(lengths), 5, length), np.int32)
    for sample, texts in zip(samples, lengths, strict=True):
        start = 0
        for count in texts:
            tokens = np.cumsum(rng.integers(0, 4, count + 1)) % vocab
            place = slice(start, start + count)
            sample[:, place] = [tokens[:-1], rng.random(count) < 0.9, tokens[1:], range(count)[::-1], range(count)]
            start += count
    return samples


def losses_of(model: ModelParams, form: SampleForm, arrays: dict[str, np.ndarray]) -> float:
    """The sum of the losses of all tokens that count."""
    count = len(arrays["labels"])
    graph = build_graph(model, form)
    inputs = {tensor.name: arrays[tensor.name].astype(tensor.dtype) for tensor in graph.inputs}
    batch = Batch(0, inputs, samples=count, tokens=int(arrays["mask"].sum()), size=count)
    with make_appliance(graph, optimizer=None, max_gradient_norm=None, seed=1, lanes=1) as appliance:
        appliance.prepare(count, trains=False)
        appliance.memoryx.initialize(1)
        return appliance.evaluate(batch, step=0)[0].total


SOME = ("gpt2", "llama", "mistral", "bloom", "gemma2", "mixtral")
"""families whose attention differs; the others are for the lab"""


@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=[pytest.mark.lab] * (name not in SOME)) for name in FAMILIES]
)
def test_a_packed_sample_has_the_losses_of_its_texts_alone(family):
    model = decoder_params(layers=2, sequence=S, initializer_range=0.5, **FAMILIES[family])
    assert model.loss_scaling == "num_tokens"
    if model.position_embedding_type == "fixed" or model.sees_by_place:
        pytest.skip("refused")
    samples = packed(LENGTHS, S, vocab=model.vocab_size)
    names = ("input_ids", "mask", "labels", "spans", "position_ids")
    arrays = {name: samples[:, row] for row, name in enumerate(names)}
    arrays["segments"] = np.cumsum(arrays["position_ids"] == 0, axis=1)
    alone = {name: np.zeros((sum(map(len, LENGTHS)), S), np.int32) for name in ("input_ids", "mask", "labels")}
    row = 0
    for sample, texts in zip(samples, LENGTHS, strict=True):
        start = 0
        for count in texts:
            for part, name in enumerate(alone):
                alone[name][row, :count] = sample[part, start : start + count]
            start, row = start + count, row + 1
    found, expected = losses_of(model, SampleForm(S, is_packed=True), arrays), losses_of(model, SampleForm(S), alone)
    assert found == pytest.approx(expected, rel=2e-6)
    together = losses_of(model, SampleForm(S), arrays)
    assert abs(together - expected) > 1e-5 * expected  # texts that see each other have other losses


ENCODERS = {
    "learned": {},
    "none": {"position_embedding_type": None},
    "rotary": {"position_embedding_type": "rotary", "rotary_dim": 4},
    "alibi": {"position_embedding_type": "alibi"},
    "with token types": {"num_segments": 2},
    "scaled": {"embeddings_scale": 2.0, "norm_first": True, "embedding_layer_norm": False},
}


@pytest.mark.parametrize("keys", ENCODERS.values(), ids=ENCODERS)
def test_a_packed_sample_of_an_encoder_has_the_losses_of_its_texts_alone(keys):
    """Two tokens of each text are masked."""
    model = encoder_params(layers=2, sequence=S, disable_nsp=True, initializer_range=0.5, **keys)
    samples, most = packed(LENGTHS, S, vocab=model.vocab_size), 2 * max(map(len, LENGTHS))
    begins = [(row, sum(texts[:n]), count) for row, texts in enumerate(LENGTHS) for n, count in enumerate(texts)]

    def made(count: int) -> dict[str, np.ndarray]:
        names = "input_ids", "token_type_ids", "attention_mask", "segments"
        arrays = {name: np.zeros((count, S), np.int32) for name in names}
        arrays |= {name: np.zeros((count, most), np.int32) for name in ("masked_lm_positions", "labels", "mask")}
        return {**arrays, "position_ids": samples[:, 4]}

    together, alone = made(len(LENGTHS)), made(len(begins))
    for text, (row, start, count) in enumerate(begins):
        number = int(together["segments"][row].max()) + 1
        for arrays, sample, first in ((together, row, start), (alone, text, 0)):
            here = slice(first, first + count)
            arrays["input_ids"][sample, here] = samples[row, 0, start : start + count]
            arrays["token_type_ids"][sample, here] = np.arange(count) % 2
            arrays["attention_mask"][sample, here], arrays["segments"][sample, here] = 1, number
            for place in {0, count - 1}:
                label = int(arrays["mask"][sample].sum())
                arrays["masked_lm_positions"][sample, label] = first + place
                arrays["labels"][sample, label] = samples[row, 2, start + place]
                arrays["mask"][sample, label] = 1
    found = losses_of(model, SampleForm(S, most, is_packed=True), together)
    assert found == pytest.approx(losses_of(model, SampleForm(S, most), alone), rel=2e-6)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A folder of 96 packed samples."""
    folder = tmp_path_factory.mktemp("packed") / "train"
    folder.mkdir()
    lengths = [(5 + n % 40, 20, 30, 1 + n % 30) for n in range(96)]
    with h5py.File(folder / "data.h5", "w") as file:
        file["data"] = packed(lengths, SEQUENCE, vocab=64)
        file.attrs["n_examples"] = len(lengths)
    return folder


def params_of(folder: Path, data: Path, **changes) -> Path:
    usual = {f"fit__{part}_dataloader__use_vsl": True for part in ("train", "val")}
    usual |= {"init__checkpoint": {"steps": 3}, "init__loop": {"max_steps": 5}}
    return gpt_params(folder, data, **usual, **changes)


@pytest.mark.takes("four runs of a few steps")
@pytest.mark.parametrize(
    "changes", [DROPOUT, pytest.param({"init__model__position_embedding_type": "rotary"}, marks=pytest.mark.lab)]
)
def test_packed_texts_have_the_same_bits_on_any_number_of_systems_and_after_a_stop(tmp_path, data, changes):
    expected = bits(run_file(params_of(tmp_path / "whole", data, **changes)))
    for num_csx, lanes in [(2, 1), (4, 3)]:
        file = params_of(tmp_path / str(num_csx), data, **changes)
        assert bits(run_file(file, lanes=lanes, **{NUM_CSX: num_csx})) == expected
    file = params_of(tmp_path / "stopped", data, **changes)
    begun = run_file(file, **{STEPS: 3})
    losses, checkpoint = bits(run_file(file))
    assert ([loss.hex() for loss in begun.losses] + losses, checkpoint) == expected


@pytest.mark.takes("a run and two evaluations")
def test_texts_that_are_not_packed_stand_beside_those_that_are(tmp_path, data):
    plain = write_text(tmp_path / "plain", 48)
    loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(plain), "batch_size": 48}
    changes = {"fit__train_dataloader__use_vsl": True, "fit__val_dataloader": loader}
    run_file(params_of(tmp_path / "both", data))
    found = run_file(gpt_params(tmp_path / "both", data, **changes), mode="eval")
    expected = run_file(gpt_params(tmp_path / "both", plain), mode="eval")
    # Positions are looked up in place of added; the rest is the same.
    losses = [result.evaluations[-1]["loss"] for result in (found, expected)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
