"""Checkpoints that the vendor's library wrote: weights and optimizer state go on here, and nothing in them runs."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import yaml

from cstool.convert.vendor_reader import VendorReader
from cstool.model.graphs import build_graph
from cstool.model.params import load_params
from cstool.training.store import CheckpointReader
from tests.end_to_end.refusals import Outcome, error
from tests.end_to_end.runs import SEQUENCE, gpt_params, run_file
from tests.reference.vendor_files import Bfloat16, Constant, Link, Object, write_vendor

Array = np.ndarray
Spoil = Callable[[h5py.File], object]
TABLE = "embedding_layer.word_embeddings.weight"
NORM = "transformer_decoder.norm"


@pytest.fixture
def file(tmp_path, data) -> Path:
    return gpt_params(tmp_path, data)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, data) -> Path:
    """The checkpoint of two steps of cstool, to write as the vendor would."""
    folder = tmp_path_factory.mktemp("trained")
    run_file(gpt_params(folder, data, init__loop={"max_steps": 2}, init__checkpoint={"steps": 2}))
    return folder / "model_dir" / "checkpoint_2.mdl"


def arrays(checkpoint: Path) -> dict[str, Array]:
    with CheckpointReader(checkpoint) as reader:
        return {name: reader.read(name) for name in reader.tensor_names()}


def in_bytes(found: Mapping[str, Array]) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in found.items()}


@pytest.fixture
def weights(trained) -> dict[str, Array]:
    return {name: array for name, array in arrays(trained).items() if name.startswith("model.")}


@pytest.fixture
def converted(conversion, tmp_path, file) -> Callable[..., Outcome]:
    """Write a state as the vendor would, spoil the file, and convert it to a.mdl, a checkpoint of the test's model."""

    def convert(state: Mapping[str, Any], spoil: Spoil | None = None, params: Path = file, **how: Any) -> Outcome:
        write_vendor(tmp_path / "vendor.mdl", state, **how)
        if spoil is not None:
            with h5py.File(tmp_path / "vendor.mdl", "r+") as h5:
                spoil(h5)
        return conversion("vendor.mdl", "a.mdl", "-p", params)

    return convert


def vendor_state(found: Mapping[str, Array], prefix: str = "model.") -> dict[str, Any]:
    """Return the state of a vendor's run: the last norm under both names, `ln_f` first, as its module has them."""
    weights = {name.removeprefix("model."): array for name, array in found.items() if name.startswith("model.")}
    norms = [name for name in weights if name.startswith(NORM)]
    begins = [name for name in weights if name.startswith("embedding_layer")]
    order = [*begins, *norms, *(name for name in weights if name not in (*norms, *begins))]
    state: dict[str, Any] = {}
    for name in order:
        state[f"{prefix}{name.replace(NORM, 'ln_f')}"] = weights[name]
    for name in norms:
        state[f"{prefix}{name}"] = Link(f"{prefix}{name.replace(NORM, 'ln_f')}")
    state[f"{prefix}lm_head.weight"] = Link(f"{prefix}{TABLE}")
    decays = [name for name in order if "norm" not in name and not name.endswith("bias")]
    groups = [decays, [name for name in order if name not in decays]]
    number = 0
    for group, names in enumerate(groups):
        for position, name in enumerate(names):
            for part in ("exp_avg", "exp_avg_sq"):
                if (key := f"optimizer.{name}.{part}") in found:
                    state[f"optimizer.state.{number}.{part}"] = found[key]
            state[f"optimizer.state.{number}.beta1_power"] = np.float32(0.81).reshape(())
            state[f"optimizer.param_groups.{group}.params.{position}"] = number
            number += 1
    return {**state, "global_step": 2, "schedulers.0.name": "LinearLR", "grad_scaler": None, "dataloader": Object()}


@pytest.mark.parametrize(
    ("compression", "prefix"),
    [(None, "model."), ({"compression": "lzf", "shuffle": True}, "model.model."), ({}, "model."), ("lz4", "model.")],
    ids=["gzip", "lzf", "none", "lz4"],
)
def test_weights_and_optimizer_state_are_taken_over_bit_for_bit(tmp_path, converted, trained, compression, prefix):
    before = arrays(trained)
    if compression == "lz4":  # as the vendor compresses
        compression = pytest.importorskip("hdf5plugin").LZ4()
    outcome = converted(vendor_state(before, prefix), compression=compression)
    note = "note: left out since it is Python code, which is never run: dataloader\n"
    assert outcome == (0, f"{note}Checkpoint saved to TMP/a.mdl\n", "")
    assert in_bytes(arrays(tmp_path / "a.mdl")) == in_bytes(before)
    with CheckpointReader(tmp_path / "a.mdl") as reader:
        assert reader.value("global_step") == 2
        assert reader.link_of("model.lm_head.weight") == f"model.{TABLE}"


@pytest.mark.takes("two runs")
def test_a_run_goes_on_from_it_with_all_states(cstool, tmp_path, file, converted, trained):
    """Its place in the data is not taken over, so the data begin afresh; all else is as if nothing had happened."""
    assert converted(vendor_state(arrays(trained))).code == 0
    losses = []
    for checkpoint, states in ((tmp_path / "a.mdl", "all"), (trained, "model,optimizer")):
        flags = ("--checkpoint_path", checkpoint, "--load_checkpoint_states", states, "--json")
        document = cstool("run", "-p", file, *flags, "--model_dir", tmp_path / f"from_{checkpoint.stem}").document
        losses.append(document["losses"])
        assert document["last_step"] == 4
    assert losses[0] == losses[1]
    assert len(losses[0]) == 2


def test_narrow_numbers_constants_and_older_names(tmp_path, converted, weights):
    state = vendor_state(weights)
    bits = {name: array.view(np.uint32) >> 16 for name, array in weights.items()}
    linear = "model.transformer_decoder.layers.1.ffn.ffn.0.linear_layer.weight"
    half = "model.transformer_decoder.layers.0.ffn.ffn.0.linear_layer.weight"
    norm = "model.transformer_decoder.layers.0.norm1.weight"
    positions = "model.embedding_layer.position_embeddings"
    state[linear] = Bfloat16(bits[linear].astype(np.uint16))
    state[half] = weights[half].astype(np.float16)
    state[norm] = Constant((32,), 1.0)
    state[f"{positions}.weight"] = state.pop(f"{positions}.embed.weight")
    state["model.embedding_layer.position_embed_helper.rope_pe_helper.inv_freq"] = np.ones(4, np.float32)
    assert converted(state, order=False).code == 0
    after = arrays(tmp_path / "a.mdl")
    assert after.keys() == weights.keys()
    expected = {
        **weights,
        linear: (bits[linear] << 16).view(np.float32),
        half: weights[half].astype(np.float16).astype(np.float32),
        norm: np.ones(32, np.float32),
    }
    for name, array in expected.items():
        np.testing.assert_array_equal(after[name], array, err_msg=name)


def test_files_of_older_releases_say_less_and_lack_the_mark(conversion, tmp_path, file, weights):
    """Format 0.4: attributes of the datasets alone, the structure as a Python object, which is never run."""
    linear = "model.transformer_decoder.layers.1.ffn.ffn.0.linear_layer.weight"
    bits = weights[linear].view(np.uint32) >> 16
    with h5py.File(tmp_path / "vendor.mdl", "w") as h5:
        h5.attrs["__version__"], h5.attrs["__spec__"] = 0.4, b"\x80\x04cos\nsystem\n.".hex()
        for name, array in weights.items():
            stored = bits.astype(np.uint16).view(np.int16) if name == linear else array
            dataset = h5.create_dataset(name, data=stored, compression="gzip")
            dataset.attrs["__H5_TYPE__"], dataset.attrs["is_bfloat16"] = "TorchTensorH5Type", name == linear
        h5.create_dataset("optimizer.state.0.exp_avg", data=weights[linear])
    outcome = conversion("vendor.mdl", "a.mdl", "-p", file)
    notes = (
        "note: the optimizer state is left out: the file does not say the order of the weights\n"
        "note: the step of the run is left out: the file does not have it as a number\n"
    )
    assert outcome == (0, f"{notes}Checkpoint saved to TMP/a.mdl\n", "")
    after = arrays(tmp_path / "a.mdl")
    expected = {**weights, linear: (bits << 16).view(np.float32)}
    assert in_bytes(after) == in_bytes(expected)


def slopes_of(heads: int) -> Array:
    """Return the slopes of ALiBi as the vendor keeps them, (heads, 1), in the words of the paper's authors."""
    if heads & (heads - 1) == 0:
        found = [(2.0 ** -(8.0 / heads)) ** (n + 1) for n in range(heads)]
    else:
        lower = 2 ** (heads.bit_length() - 1)
        found = [*slopes_of(lower)[:, 0], *slopes_of(2 * lower)[0::2, 0][: heads - lower]]
    return np.array(found, np.float32)[:, None]


SLOPES = "embedding_layer.position_embed_helper.slopes"


@pytest.mark.parametrize(("heads", "narrow"), [(4, False), (6, True)])
def test_the_slopes_of_alibi_are_no_weight(tmp_path, data, converted, heads, narrow):
    changes = {"num_heads": heads, "hidden_size": 24, "position_embedding_type": "alibi", "pos_scaling_factor": 2.0}
    file = gpt_params(tmp_path, data, **{f"init__model__{key}": value for key, value in changes.items()})
    rng = np.random.default_rng(0)
    weights = build_graph(load_params(file).model, SEQUENCE).weights
    state = {f"model.{name}": rng.standard_normal(w.shape).astype(np.float32) for name, w in weights.items()}
    slopes = slopes_of(heads)
    stored = Bfloat16((slopes.view(np.uint32) >> 16).astype(np.uint16)) if narrow else slopes
    outcome = converted({**state, f"model.{SLOPES}": stored, "global_step": 7}, params=file)
    assert outcome == (0, "Checkpoint saved to TMP/a.mdl\n", "")
    assert in_bytes(arrays(tmp_path / "a.mdl")) == in_bytes(state)
    (tmp_path / "a.mdl").unlink()
    slopes[-1] *= 1.02
    message = f"TMP/vendor.mdl: {SLOPES} must be what ALiBi has for {heads} heads, it is not"
    told = error(message, "slopes that were trained or changed cannot be had")
    assert converted({**state, f"model.{SLOPES}": slopes}, params=file) == (2, "", told)


def test_what_python_has_once_is_stored_once_and_found_through_links(tmp_path, converted, trained):
    state = {"best_step": 2, **vendor_state(arrays(trained))}
    assert converted(state).code == 0
    with VendorReader(tmp_path / "vendor.mdl") as reader:
        assert (reader.target("global_step"), reader.number("global_step")) == ("best_step", 2)
    with CheckpointReader(tmp_path / "a.mdl") as reader:
        assert reader.value("global_step") == 2
    (tmp_path / "a.mdl").unlink()
    outcome = converted({**state, "best_step": Link("global_step"), "global_step": Link("best_step")})
    message = "TMP/vendor.mdl: global_step must lead to a value, its links go in a circle"
    assert outcome == (2, "", error(message))


def test_without_the_step_the_weights_alone_go_on(cstool, tmp_path, file, converted, trained):
    state = {key: value for key, value in vendor_state(arrays(trained)).items() if key != "global_step"}
    note = "note: the step of the run is left out: the file does not have it as a number"
    assert converted(state).stdout.splitlines()[0] == note
    outcome = cstool("run", "-p", file, "--checkpoint_path", tmp_path / "a.mdl")
    hint = "--load_checkpoint_states model loads the weights alone"
    message = "TMP/a.mdl: does not say global_step, which a run that goes on needs"
    assert (outcome.code, outcome.stderr) == (2, error(message, hint))
    flags = ("--load_checkpoint_states", "model", "--max_steps", 1)
    assert cstool("run", "-p", file, "--checkpoint_path", tmp_path / "a.mdl", *flags).code == 0


GROUPS, THIRD_STATE = "optimizer.param_groups.{}.params.0", "optimizer.state.3.exp_avg"
THIRD = "transformer_decoder.layers.0.self_attn.proj_k_dense_layer.weight"


@pytest.mark.parametrize(
    ("change", "order", "why"),
    [
        (lambda state: state.update({GROUPS.format(2): state.pop(GROUPS.format(1))}), True,
         "its groups of weights are not those that decay and those that do not"),
        (lambda state: state.update({THIRD_STATE: state[THIRD_STATE][1:]}), True,
         f"it has no {THIRD_STATE} of the shape of {THIRD}"),
        (lambda state: state.pop(f"{THIRD_STATE}_sq"), True,
         f"it has no {THIRD_STATE}_sq of the shape of {THIRD}"),
        (lambda state: None, False, "the file does not say the order of the weights"),
    ],
)  # fmt: skip
def test_optimizer_state_that_cannot_be_told_apart_is_left_out_with_a_note(
    tmp_path, converted, trained, change, order, why
):
    state = vendor_state(arrays(trained))
    change(state)
    outcome = converted(state, order=order)
    assert outcome.said.splitlines()[0] == f"note: the optimizer state is left out: {why}"
    assert all(name.startswith("model.") for name in arrays(tmp_path / "a.mdl"))


def test_a_vendors_checkpoint_becomes_hugging_faces_or_sparse_in_one_go(
    cstool, conversion, tmp_path, file, trained, weights
):
    write_vendor(tmp_path / "vendor.mdl", vendor_state(arrays(trained)))
    command = ("checkpoint", "convert", tmp_path / "vendor.mdl")
    assert cstool(*command, tmp_path / "hf", "-p", file, "--to", "hf").code == 0
    assert conversion("hf", "b.mdl", "-p", file).code == 0
    assert in_bytes(arrays(tmp_path / "b.mdl")) == in_bytes(weights)
    out = tmp_path / "sparse.mdl"
    assert cstool(*command, out, "-p", file, "--to", "sparse", "--sparsity", "0.5").code == 0
    assert sum(name.endswith(".indices") for name in arrays(out)) == 12


def replaced(make: Callable[[h5py.File, str], object]) -> Spoil:
    """Put something else in the place of the table of embeddings."""

    def spoil(h5: h5py.File) -> None:
        del h5[f"model.{TABLE}"]
        make(h5, f"model.{TABLE}")

    return spoil


def created(shape: tuple[int, int] = (64, 32), **asked: Any) -> Spoil:
    return replaced(lambda h5, name: h5.create_dataset(name, shape, "f4", **asked))


def stored(array: Any) -> Spoil:
    return replaced(lambda h5, name: h5.create_dataset(name, data=array))


def view_elsewhere(h5: h5py.File, name: str) -> None:
    layout = h5py.VirtualLayout((64, 32), "f4")
    layout[:] = h5py.VirtualSource("/tmp/other.h5", "x", (64, 32))
    h5.create_virtual_dataset(name, layout)


def make_object(h5: h5py.File, name: str) -> None:
    h5.create_dataset(name, data=h5py.Empty("f")).attrs["__BYTES__"] = np.void(b"cos\nsystem\n.")


def filtered(number: int) -> Spoil:
    def make(h5: h5py.File, name: str) -> None:
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        layout.set_chunk((8, 8))
        layout.set_filter(number, h5py.h5z.FLAG_OPTIONAL, (0,))
        space = h5py.h5s.create_simple((64, 32))
        h5py.h5d.create(h5.id, name.encode(), h5py.h5t.IEEE_F32LE, space, layout)

    return replaced(make)


PARAMS = "--params names the file of the model"
DTYPES = f"the dtype of model.{TABLE} must be float32, float16 or bfloat16, got"
OUTSIDE = f"model.{TABLE} must be a tensor in the file itself, it is not"
FILTERS = "must be compressed by one of gzip, shuffle, fletcher32, szip, lzf, LZ4, got filter 32026"


@pytest.mark.parametrize(
    ("spoil", "rule", "hint"),
    [
        (lambda h5: h5.attrs.pop("__SUCCESS__"), None, "take an earlier checkpoint"),
        (lambda h5: h5.attrs.update(__version__=1.5), "the version of the vendor's format must be 0.x, got 1.5", None),
        (replaced(lambda h5, name: h5.update({name: h5py.ExternalLink("/etc/passwd", "/x")})),
         f"model.{TABLE} must be in the file itself, not behind a link", None),
        (created(external=[("/etc/passwd", 0, 64 * 32 * 4)]), OUTSIDE, None),
        (replaced(view_elsewhere), OUTSIDE, None),
        (replaced(lambda h5, name: h5.create_group(name)), f"model.{TABLE} must be a dataset, it is not", None),
        (replaced(make_object), f"model.{TABLE} must be a tensor, got a Python object, which is never run", None),
        (created((2**40, 2**20), chunks=(64, 64)),
         f"{TABLE} must be 64 x 32, as in this model, got 1099511627776 x 1048576", PARAMS),
        (created(chunks=(2**14, 2**14), maxshape=(None, None)),
         f"the chunks of model.{TABLE} must have at most 33554432 bytes, got 1073741824", None),
        (stored(np.zeros((64, 32))), f"{DTYPES} float64", None),
        (stored(np.zeros((64, 32), np.int16)), f"{DTYPES} int16", None),
        (filtered(32026), f"model.{TABLE} {FILTERS}", None),
        (replaced(lambda h5, name: h5.attrs.pop(f"{name}.__metadata__")),
         f"lacks the weight {TABLE} of this model", PARAMS),
        (lambda h5: h5.create_dataset("model.adapter.weight", data=np.zeros(3, np.float32)),
         "has the weight adapter.weight, which this model lacks", PARAMS),
        (lambda h5: h5.create_dataset(f"model.{SLOPES}", data=slopes_of(2)),
         f"has the weight {SLOPES}, which this model lacks", PARAMS),
    ],
)  # fmt: skip
def test_what_cannot_be_read_safely_is_refused_and_nothing_is_written(converted, tmp_path, weights, spoil, rule, hint):
    outcome = converted(weights, spoil)
    partial = "Cannot load partially written checkpoint at TMP/vendor.mdl"
    assert outcome == (2, "", error(partial if rule is None else f"TMP/vendor.mdl: {rule}", hint))
    assert not [*tmp_path.glob("*a.mdl*")]


def test_lz4_that_is_not_installed_is_named_with_what_installs_it(converted, weights, monkeypatch):
    monkeypatch.setattr("cstool.convert.vendor_reader.h5py.h5z.filter_avail", lambda number: number != 32004)
    message = f"TMP/vendor.mdl: model.{TABLE} is compressed by LZ4, which must be installed, it is not"
    hint = "`pip install 'cstool[lz4]'` installs it"
    assert converted(weights, filtered(32004)) == (2, "", error(message, hint))


def test_damage_in_the_middle_of_a_tensor_is_found_and_nothing_is_left(converted, tmp_path, weights):
    def overwrite(h5: h5py.File) -> None:
        info = h5[f"model.{TABLE}"].id.get_chunk_info(3)
        h5.flush()
        with (tmp_path / "vendor.mdl").open("r+b") as file:
            file.seek(info.byte_offset)
            file.write(b"\xff" * info.size)

    message = f"TMP/vendor.mdl: model.{TABLE} is damaged or cut short"
    assert converted(weights, overwrite) == (2, "", error(message, "take an earlier checkpoint"))
    assert not [*tmp_path.glob("*a.mdl*")]


def test_the_model_must_be_named(conversion, tmp_path):
    write_vendor(tmp_path / "v.mdl", {"model.a": np.zeros(2, np.float32)})
    outcome = conversion("v.mdl", "a.mdl")
    why = "since it says which model this is, and the checkpoint does not"
    assert outcome == (2, "", error(f"--params: must be given, {why}"))
    os.mkfifo(tmp_path / "pipe.mdl")  # keeps nobody waiting
    assert conversion("pipe.mdl", "out.mdl").code == 2


def flat(value: Any, key: str) -> dict[str, Any]:
    """Return nested mappings and lists by dotted keys."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if entries is None:
        return {key: value}
    return {k: v for name, entry in entries for k, v in flat(entry, f"{key}.{name}").items()}


def test_the_model_may_be_named_by_the_params_that_the_file_keeps(conversion, tmp_path, file, trained):
    document = yaml.safe_load(file.read_text())
    document["trainer"]["init"]["callbacks"] = [{"SelectiveGrad": {"selective_grads": "all"}}]
    kept = [{"version": "2.9.0", "params": {}}, {"version": "2.10.0", "model_name": "Gpt2Model", "params": document}]
    state = {**vendor_state(arrays(trained)), **flat(kept, "__metadata__")}
    write_vendor(tmp_path / "vendor.mdl", state)
    stdout = conversion("vendor.mdl", "a.mdl").said
    assert stdout.splitlines()[-2:] == ["Checkpoint saved to TMP/a.mdl", "Config saved to TMP/a.yaml"]
    assert load_params(tmp_path / "a.yaml").model == load_params(file).model
    # A file that is named wins: this one is of another model.
    other = gpt_params(tmp_path / "other", tmp_path, init__model__filter_size=48)
    outcome = conversion("vendor.mdl", "b.mdl", "-p", other)
    name = "transformer_decoder.layers.0.ffn.ffn.0.linear_layer.weight"
    message = f"TMP/vendor.mdl: {name} must be 48 x 32, as in this model, got 64 x 32"
    assert outcome == (2, "", error(message, PARAMS))
    document["trainer"]["init"]["model"]["moe"] = {"num_experts": 4, "routing_algorithm": "hash"}
    write_vendor(tmp_path / "moe.mdl", {**state, **flat([kept[0], {"params": document}], "__metadata__")})
    outcome = conversion("moe.mdl", "c.mdl")
    message = "TMP/moe.mdl: not supported: trainer.init.model.moe.routing_algorithm: hash"
    assert outcome == (2, "", error(message, "supported: learned"))
