"""`cstool config`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "params").glob("*.yaml"))
VENDORS_FILES = sorted((ROOT / "tests/interop").glob("*.yaml"))
LEGACY_FILES = [path for path in VENDORS_FILES if path.stem.endswith("legacy")]

SMALL: dict[str, Any] = {
    "trainer": {
        "init": {
            "model": {"name": "gpt2", "vocab_size": 11, "hidden_size": 8, "num_heads": 2, "num_hidden_layers": 2},
            "optimizer": {"SGD": {"learning_rate": 0.1}},
        },
        "fit": {"train_dataloader": {"data_processor": "GptHDF5MapDataProcessor", "data_dir": "none", "batch_size": 4}},
    }
}
SUCCESS = "Config validation was successful!\n"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A file of a small model, whose data is not there."""
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL, sort_keys=False))
    return path


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_our_files_are_valid_without_their_data(cstool, path):
    assert cstool("config", "validate", str(path)) == (0, SUCCESS, "")


def test_validate_says_what_has_no_effect(cstool, small):
    keys = ["trainer.init.device", "trainer.init.logging.wsc_log_level"]
    outcome = cstool("config", "validate", str(small), "--set", f"{keys[0]}=CSX", f"{keys[1]}=INFO")
    assert outcome == (0, "".join(f"{key}: accepted, no effect\n" for key in keys) + SUCCESS, "")


def test_validate_warns_of_the_older_layout(cstool):
    path = ROOT / "tests/interop/gpt2_small_legacy.yaml"
    outcome = cstool("config", "validate", str(path))
    assert (outcome.code, outcome.stderr) == (0, "")
    assert outcome.stdout.startswith(
        f"warning: {path}: is in the older layout (train_input, eval_input, model, optimizer, runconfig); "
        f"`cstool config convert_legacy {path}` writes it in the trainer layout\n"
    )
    assert "\ntrain_input.num_workers: accepted, no effect\n" in outcome.stdout
    assert outcome.stdout.endswith(SUCCESS)


def test_validate_finds_a_filter_that_matches_nothing(cstool, small):
    override = "trainer.init.sparsity={sparsity: 0.5, param_filter: '*linear_layers.weight'}"
    assert cstool("config", "validate", str(small), "--set", override) == (
        2,
        "",
        f"error: --set {override}: trainer.init.sparsity.param_filter must match a matrix of a linear layer, got "
        "'*linear_layers.weight'\n"
        "hint: the nearest are transformer_decoder.layers.*.ffn.ffn.0.linear_layer.weight, "
        "transformer_decoder.layers.*.ffn.ffn.1.linear_layer.weight, "
        "transformer_decoder.layers.*.self_attn.proj_q_dense_layer.weight\n",
    )


def test_validate_tells_all_mistakes_at_once(cstool, small):
    overrides = ["trainer.init.model.hidden_size=9", "trainer.init.loop.max_stepz=5"]
    assert cstool("config", "validate", str(small), "--set", *overrides) == (
        2,
        "",
        "error: --set trainer.init.model.hidden_size=9: must be a multiple of num_heads (2), got 9\n"
        "hint: 8 and 10 are the nearest\n"
        "error: --set trainer.init.loop.max_stepz=5: is not a known key\n"
        "hint: did you mean max_steps?\n",
    )


def test_validate_is_there_as_json(cstool, small):
    outcome = cstool("config", "validate", str(small), "--json", "--set", "trainer.init.device=CSX")
    assert json.loads(outcome.stdout) == {
        "path": str(small),
        "valid": True,
        "trainers": [{"model": "gpt2", "parameters": cstool_parameters(cstool, small)}],
        "warnings": [],
        "notes": ["trainer.init.device: accepted, no effect"],
    }


def cstool_parameters(cstool, path: Path) -> int:
    return json.loads(cstool("config", "stats", str(path), "--json").stdout)["trainers"][0]["parameters"]["all"]


@pytest.mark.parametrize("command", ["validate", "show", "stats"])
def test_a_file_that_is_not_there_is_one_line(cstool, tmp_path, command):
    path = tmp_path / "no.yaml"
    assert cstool("config", command, str(path)) == (2, "", f"error: {path}: there is no such file\n")


@pytest.mark.parametrize("command", ["validate", "show", "stats"])
def test_no_command_waits_for_what_only_a_run_needs(command):
    script = (
        "import sys; from cstool.cli import main; code = main(); "
        "heavy = {'numpy', 'numba', 'scipy', 'h5py', 'rich', 'cstool.machine', 'cstool.run'} & set(sys.modules); "
        "sys.exit(code or ' '.join(sorted(heavy)) or 0)"
    )
    arguments = ["config", command, str(ROOT / "params/gpt2_small.yaml")]
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("path", VENDORS_FILES, ids=lambda path: path.stem)
def test_the_vendors_files_are_valid(cstool, path):
    outcome = cstool("config", "validate", str(path))
    assert (outcome.code, outcome.stderr) == (0, "")
    assert outcome.stdout.endswith(SUCCESS)


@pytest.mark.parametrize("path", [*FILES, *VENDORS_FILES], ids=lambda path: path.stem)
def test_showing_what_was_shown_changes_nothing(cstool, tmp_path, path):
    shown = cstool("config", "show", str(path))
    assert (shown.code, shown.stderr) == (0, "")
    (tmp_path / "again.yaml").write_text(shown.stdout)
    assert cstool("config", "show", str(tmp_path / "again.yaml")) == shown


MODELS: dict[str, dict[str, Any]] = {
    "alibi": {"position_embedding_type": "alibi", "attention_dropout_rate": 0.0},
    "no positions": {"position_embedding_type": None},
    "initializers": {"initializer": {"name": "xavier_uniform", "gain": 2.0}, "embedding_initializer": "zeros"},
    "uniform": {"ffn_initializer": {"name": "uniform", "a": -0.1, "b": 0.1}},
    "kaiming": {"output_layer_initializer": {"name": "kaiming_normal", "mode": "fan_out"}},
    "muP": {"mup_base_hidden_size": 4, "mup_base_filter_size": 16, "output_logits_alpha": 2.0},
    "yarn": {
        "position_embedding_type": "rotary",
        "rotary_dim": 4,
        "pos_scaling_type": "yarn",
        "pos_scaling_factor": 4.0,
        "pos_scaling_extra_args": {"original_max_position_embeddings": 64},
    },
    "windows": {
        "attention_sliding_window_length": 4,
        "sliding_window_every_other_decoder_layer": True,
        "attention_sink_tokens": 1,
        "apply_attention_sinks": True,
        "attention_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    },
    "groups": {"attention_module": "multiquery_attention", "extra_attention_params": {"num_kv_groups": 1}},
    "falcon": {"name": "falcon", "rotary_dim": 4, "use_untied_layer_norm": True},
}


@pytest.mark.parametrize("name", MODELS)
def test_showing_what_was_shown_changes_nothing_whatever_the_model(cstool, tmp_path, name):
    data = json.loads(json.dumps(SMALL))
    data["trainer"]["init"]["model"] |= MODELS[name]
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(data))
    shown = cstool("config", "show", str(tmp_path / "x.yaml"))
    assert (shown.code, shown.stderr) == (0, "")
    (tmp_path / "again.yaml").write_text(shown.stdout)
    assert cstool("config", "show", str(tmp_path / "again.yaml")) == shown


def test_show_fills_in_what_is_left_out(cstool, small, monkeypatch):
    monkeypatch.chdir(small.parent)
    init = yaml.safe_load(cstool("config", "show", str(small)).stdout)["trainer"]["init"]
    assert init["model"]["layer_norm_epsilon"] == 1e-5
    given_and_filled_in = {"learning_rate": 0.1, "weight_decay": 0.0, "momentum": 0.0, "nesterov": False}
    assert init["optimizer"]["SGD"].items() >= given_and_filled_in.items()
    assert init["model_dir"] == str(small.parent / "checkpoints/small")


def test_show_applies_overrides(cstool, small):
    shown = cstool("config", "show", str(small), "--set", "trainer.init.seed=7", "trainer.init.loop.max_steps=3")
    init = yaml.safe_load(shown.stdout)["trainer"]["init"]
    assert (init["seed"], init["loop"]["max_steps"]) == (7, 3)


def test_show_is_there_as_json(cstool, small):
    as_yaml, as_json = cstool("config", "show", str(small)), cstool("config", "show", str(small), "--json")
    assert json.loads(as_json.stdout) == yaml.safe_load(as_yaml.stdout)


@pytest.mark.parametrize("path", ["params/gpt2_small.yaml", "params/llama3_8b.yaml", "params/fc_mnist.yaml"])
def test_stats_of_our_files(cstool, golden, path):
    outcome = cstool("config", "stats", str(ROOT / path))
    assert (outcome.code, outcome.stderr) == (0, "")
    golden(f"cli/config_stats/{Path(path).stem}.txt", outcome.stdout.replace(f"{ROOT}/", ""))


def test_stats_of_a_model_with_parallel_parts(cstool, golden):
    outcome = cstool("config", "stats", str(ROOT / "tests/interop/params_falcon_7b.yaml"))
    assert (outcome.code, outcome.stderr) == (0, "")
    golden("cli/config_stats/falcon_7b.txt", outcome.stdout.replace(f"{ROOT}/", ""))


def test_stats_are_there_as_json(cstool, small):
    keys = ["max_position_embeddings=6", "filter_size=16", "use_ffn_bias=false"]
    overrides = [f"trainer.init.model.{key}" for key in keys]
    document = json.loads(cstool("config", "stats", str(small), "--json", "--set", *overrides).stdout)
    assert document["path"] == str(small)
    (found,) = document["trainers"]
    parts = {part.pop("name"): part for part in found.pop("parts")}
    assert parts["transformer_decoder.layers.*.ffn.ffn.0.linear_layer"] == {
        "role": "inner",
        "layers": 2,
        "weights": [{"count": 2, "shape": [16, 8]}],
        "parameters": 2 * 16 * 8,
    }
    layer = 4 * (8 * 8 + 8) + 2 * 16 * 8 + 2 * (8 + 8)
    embedding, inner = (11 + 6) * 8, 2 * layer + (8 + 8)
    linear, attention, output = 2 * 2 * 6 * (4 * 8 * 8 + 2 * 16 * 8), 2 * 2 * 2 * (6 * 7 // 2) * 8, 2 * 6 * 8 * 11
    assert found == {
        "model": "gpt2",
        "tokens_per_sample": 6,
        "batch_size": 4,
        "parameters": {"all": embedding + inner, "embedding": embedding, "output": 0, "inner": inner},
        "bytes": {"weights": 4 * (embedding + inner), "gradients": 4 * (embedding + inner), "optimizer_state": 0},
        "flops_per_sample": {
            "linear": {"forward": linear, "backward": 2 * linear},
            "attention": {"forward": attention, "backward": 2 * attention},
            "softmax_loss": {"forward": output, "backward": 2 * output},
            "all": {"forward": linear + attention + output, "backward": 2 * (linear + attention + output)},
        },
        "flops_per_step": 4 * 3 * (linear + attention + output),
        "rule_of_six_per_token": 6 * inner,
    }


def test_stats_count_samples_of_the_length_that_the_data_is_cut_to(cstool, small):
    key = "trainer.fit.train_dataloader.max_sequence_length"
    document = json.loads(cstool("config", "stats", str(small), "--json", "--set", f"{key}=5").stdout)
    assert document["trainers"][0]["tokens_per_sample"] == 5


def test_stats_without_training_data_say_nothing_of_a_step(cstool, tmp_path):
    (tmp_path / "x.yaml").write_text(yaml.safe_dump({"trainer": {"init": SMALL["trainer"]["init"]}}))
    outcome = cstool("config", "stats", str(tmp_path / "x.yaml"))
    assert (outcome.code, outcome.stderr) == (0, "")
    assert "per step" not in outcome.stdout
    document = json.loads(cstool("config", "stats", str(tmp_path / "x.yaml"), "--json").stdout)
    assert document["trainers"][0]["flops_per_step"] is None


@pytest.fixture
def phases(tmp_path: Path) -> Path:
    """A file of two trainers, the second with a wider model."""
    first, second = (json.loads(json.dumps(SMALL)) for _ in range(2))
    second["trainer"]["init"]["model"]["hidden_size"] = 16
    for number, trainer in enumerate((first, second)):
        trainer["trainer"]["init"]["model_dir"] = str(tmp_path / f"model_{number}")
    path = tmp_path / "phases.yaml"
    path.write_text(yaml.safe_dump({"trainer": [first, second]}))
    return path


def test_validate_checks_every_trainer_of_a_list(cstool, phases):
    assert cstool("config", "validate", str(phases)) == (0, SUCCESS, "")
    override = "trainer.1.init.model.num_heads=3"
    outcome = cstool("config", "validate", str(phases), "--set", override)
    assert (outcome.code, outcome.stdout) == (2, "")
    assert "must be a multiple of num_heads (3), got 16" in outcome.stderr


def test_a_trainer_that_goes_on_from_another_model_is_an_error(cstool, phases):
    shared = [f"trainer.{number}.init.model_dir={phases.parent / 'one'}" for number in (0, 1)]
    outcome = cstool("config", "validate", str(phases), "--set", *shared)
    rule = "must have the weights of trainer.0, from whose last checkpoint it goes on"
    assert outcome == (
        2,
        "",
        f"error: {phases}: trainer.1.init.model {rule}, and embedding_layer.word_embeddings.weight differs\n"
        "hint: give each a model_dir of its own, or a fit.ckpt_path\n",
    )
    fresh = "trainer.1.init.checkpoint.autoload_last_checkpoint=false"
    assert cstool("config", "validate", str(phases), "--set", *shared, fresh) == (0, SUCCESS, "")


def test_a_trainer_that_finds_nothing_to_train_is_warned_of(cstool, phases):
    shared = [f"trainer.init.model_dir={phases.parent / 'one'}", "trainer.init.model.hidden_size=16"]
    steps = ["trainer.0.init.loop.max_steps=7", "trainer.1.init.loop.max_steps=7"]
    warning = (
        f"warning: {phases}: trainer.1 finds nothing to train: its max_steps is 7, and trainer.0, from whose end it "
        "goes on, comes to 7\n"
    )
    outcome = cstool("config", "validate", str(phases), "--set", *shared, *steps)
    assert outcome == (0, warning + SUCCESS, "")
    more = "trainer.1.init.loop.max_steps=8"
    assert cstool("config", "validate", str(phases), "--set", *shared, *steps, more) == (0, SUCCESS, "")


def test_show_prints_every_trainer_of_a_list(cstool, phases):
    shown = cstool("config", "show", str(phases))
    trainers = yaml.safe_load(shown.stdout)["trainer"]
    assert [entry["trainer"]["init"]["model"]["hidden_size"] for entry in trainers] == [8, 16]
    (phases.parent / "again.yaml").write_text(shown.stdout)
    assert cstool("config", "show", str(phases.parent / "again.yaml")) == shown


def test_stats_count_every_trainer_of_a_list(cstool, phases):
    outcome = cstool("config", "stats", str(phases))
    titles = [line for line in outcome.stdout.splitlines() if line.startswith(str(phases))]
    rest = "gpt2, 1,024 tokens per sample. All numbers are counts; nothing is measured."
    assert titles == [f"{phases}, trainer {number} of 2: {rest}" for number in (1, 2)]
    found = json.loads(cstool("config", "stats", str(phases), "--json").stdout)["trainers"]
    assert [trainer["parameters"]["embedding"] for trainer in found] == [(11 + 1024) * 8, (11 + 1024) * 16]


@pytest.mark.parametrize("path", LEGACY_FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("place", ["beside it", "elsewhere"])
def test_a_converted_file_asks_for_the_same(cstool, tmp_path, path, place):
    original = tmp_path / "here" / path.name
    original.parent.mkdir()
    original.write_text(path.read_text())
    target = original.with_name(f"{path.stem}_v2.yaml") if place == "beside it" else tmp_path / "v2.yaml"
    out = [] if place == "beside it" else ["--out", str(target)]
    assert cstool("config", "convert_legacy", str(original), *out) == (0, f"Converted {original} to {target}\n", "")
    validated = cstool("config", "validate", str(target))
    assert (validated.code, validated.stderr) == (0, "")
    assert "warning" not in validated.stdout
    shown, expected = (yaml.safe_load(cstool("config", "show", str(p)).stdout) for p in (target, original))
    for document in (shown, expected):
        if document["trainer"]["init"]["model_dir"].startswith(str(Path("checkpoints").absolute())):
            del document["trainer"]["init"]["model_dir"]  # by default named after the file
    assert shown == expected


def test_a_conversion_replaces_nothing(cstool, tmp_path):
    taken = tmp_path / "taken.yaml"
    taken.write_text("precious")
    outcome = cstool("config", "convert_legacy", str(LEGACY_FILES[0]), "-o", str(taken))
    message = f"error: {taken}: must be a new file, found one there\nhint: remove it, or name another file with --out\n"
    assert outcome == (2, "", message)
    assert taken.read_text() == "precious"


def test_a_conversion_that_cannot_be_written_is_an_error(cstool, tmp_path):
    target = tmp_path / "no" / "x.yaml"
    message = f"error: {target}: cannot be written: No such file or directory\nhint: there is no folder {tmp_path}/no\n"
    assert cstool("config", "convert_legacy", str(LEGACY_FILES[0]), "-o", str(target)) == (2, "", message)


def test_a_file_with_mistakes_is_converted_with_a_warning(cstool, tmp_path):
    file, target = tmp_path / "x.yaml", tmp_path / "x_v2.yaml"
    file.write_text("model: {name: gpt2, hidden_sze: 8}\noptimizer: {optimizer_type: sgd, learning_rate: 0.1}\n")
    assert cstool("config", "convert_legacy", str(file)) == (
        0,
        f"Converted {file} to {target}\nwarning: {target} needs mending:\n"
        f"{target}:6: trainer.init.model.hidden_sze is not a known key\nhint: did you mean hidden_size?\n",
        "",
    )


def test_a_file_of_both_layouts_is_not_converted(cstool, tmp_path):
    file = tmp_path / "x.yaml"
    file.write_text("model: {name: gpt2}\ntrainer: {init: {}}\n")
    rule = "model is of the older layout, trainer (line 2) of the trainer layout: a file is in one of them"
    assert cstool("config", "convert_legacy", str(file)) == (2, "", f"error: {file}:1: {rule}\n")


def test_samples_are_as_long_as_their_sinks_make_them(cstool, small):
    sinks = "trainer.fit.train_dataloader.data_transforms=[{name: add_sink_tokens, num_sink_tokens: 24}]"
    loader = "trainer.fit.train_dataloader={data_processor: GptHDF5MapDataProcessor, data_dir: x, batch_size: 2}"
    key = "trainer.fit.train_dataloader.max_sequence_length"
    outcome = cstool("config", "stats", str(small), "--set", loader, sinks, f"{key}=1000", "--json")
    assert json.loads(outcome.stdout)["trainers"][0]["tokens_per_sample"] == 1024
    outcome = cstool("config", "validate", str(small), "--set", loader, sinks, f"{key}=1001")
    rule = "must be at most the max_position_embeddings of the model (1024) less 24 sink tokens, got 1001"
    assert outcome == (2, "", f"error: --set {key}=1001: {rule}\n")
    outcome = cstool("config", "validate", str(small), "--set", loader, sinks.replace("24", "1024"))
    assert (outcome.code, "must leave tokens of the max_position" in outcome.stderr) == (2, True)


def test_a_file_that_is_not_of_the_older_layout_cannot_be_converted(cstool, small, tmp_path):
    rule = "must be in the older layout (train_input, model, optimizer, runconfig)"
    message = f"error: {small}: {rule}, got the trainer layout\nhint: it needs no conversion\n"
    assert cstool("config", "convert_legacy", str(small)) == (2, "", message)
    (tmp_path / "other.yaml").write_text("a: 1")
    message = f"error: {tmp_path}/other.yaml: {rule}, got neither layout\n"
    assert cstool("config", "convert_legacy", str(tmp_path / "other.yaml")) == (2, "", message)


def test_the_keys_are_those_of_the_documentation(cstool, golden):
    outcome = cstool("config", "keys")
    assert (outcome.code, outcome.stderr) == (0, "")
    golden("../../docs/keys.md", outcome.stdout)


def test_the_keys_are_there_as_json(cstool):
    found = json.loads(cstool("config", "keys", "--json").stdout)
    loop = next(table for table in found["trainer"] if table["places"] == ["trainer.init.loop"])
    steps = {"name": "max_steps", "fate": "acted on", "values": "a whole number from 1", "default": ""}
    assert steps in loop["keys"]
    runconfig = next(table for table in found["legacy"] if table["places"] == ["runconfig"])
    assert {**steps, "values": "as trainer.init.loop.max_steps"} in runconfig["keys"]
