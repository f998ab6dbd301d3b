"""`cstool config`."""

import copy
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.end_to_end.refusals import error, rows

ROOT = Path(__file__).parents[3]
LEGACY_FILES = sorted((ROOT / "tests/interop").glob("*legacy.yaml"))

SMALL: dict[str, Any] = yaml.safe_load("""
trainer:
  init:
    model: {name: gpt2, vocab_size: 11, hidden_size: 8, num_heads: 2, num_hidden_layers: 2}
    optimizer: {SGD: {learning_rate: 0.1}}
  fit: {train_dataloader: {data_processor: GptHDF5MapDataProcessor, data_dir: none, batch_size: 4}}
""")
SUCCESS = "Config validation was successful!\n"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A file of a small model, whose data is not there."""
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL, sort_keys=False))
    return path


def test_validate_says_what_has_no_effect_also_as_json(cstool, small):
    keys = ["trainer.init.device", "trainer.init.logging.wsc_log_level"]
    outcome = cstool("config", "validate", small, "--set", f"{keys[0]}=CSX", f"{keys[1]}=INFO")
    noted = "".join(f"{key}: accepted, no effect\n" for key in keys)
    assert outcome == (0, f"{noted}Without effect: 2 keys of the file.\n{SUCCESS}", "")
    (stats,) = cstool("config", "stats", small, "--json").document["trainers"]
    assert cstool("config", "validate", small, "--json", "--set", "trainer.init.device=CSX").document == {
        "path": str(small),
        "valid": True,
        "trainers": [{"model": "gpt2", "parameters": stats["parameters"]["all"]}],
        "warnings": [],
        "notes": ["trainer.init.device: accepted, no effect"],
    }


def test_validate_warns_of_the_older_layout(cstool):
    path = ROOT / "tests/interop/gpt2_small_legacy.yaml"
    stdout = cstool("config", "validate", path).said
    assert stdout.startswith(
        f"warning: {path}: is in the older layout (train_input, eval_input, model, optimizer, runconfig); "
        f"`cstool config convert_legacy {path}` writes it in the trainer layout\n"
    )
    assert "\ntrain_input.num_workers: accepted, no effect\n" in stdout
    assert stdout.endswith(SUCCESS)


def test_validate_finds_a_filter_that_matches_nothing(cstool, small):
    override = "trainer.init.sparsity={sparsity: 0.5, param_filter: '*linear_layers.weight'}"
    rule = "must match a matrix of a linear layer, got '*linear_layers.weight'"
    near = ("ffn.ffn.0.linear_layer", "ffn.ffn.1.linear_layer", "self_attn.proj_q_dense_layer")
    assert cstool("config", "validate", small, "--set", override).refusal == error(
        f"--set {override}: trainer.init.sparsity.param_filter {rule}",
        f"the nearest are {', '.join(f'transformer_decoder.layers.*.{name}.weight' for name in near)}",
    )


def test_validate_tells_all_mistakes_at_once(cstool, small):
    overrides = ["trainer.init.model.hidden_size=9", "trainer.init.loop.max_stepz=5"]
    assert cstool("config", "validate", small, "--set", *overrides).refusal == (
        error(f"--set {overrides[0]}: must be a multiple of num_heads (2), got 9", "8 and 10 are the nearest")
        + error(f"--set {overrides[1]}: is not a known key", "did you mean max_steps?")
    )


def test_a_file_that_is_not_there_is_one_line(cstool, tmp_path):
    path = tmp_path / "no.yaml"
    for command in ("validate", "show", "stats"):
        assert cstool("config", command, path).refusal == f"error: {path}: there is no such file\n"


def test_no_command_waits_for_what_only_a_run_needs():
    script = (
        "import sys; from cstool.cli import main; file = sys.argv[1]\n"
        "for command in ('validate', 'show', 'stats'):\n"
        "    sys.argv = ['cstool', 'config', command, file]\n    assert main() == 0\n"
        "heavy = {'numpy', 'numba', 'scipy', 'h5py', 'rich', 'cstool.training.machine', 'cstool.training.run'}\n"
        "heavy &= set(sys.modules)\n"
        "sys.exit(' '.join(sorted(heavy)) or 0)"
    )
    command = [sys.executable, "-c", script, str(ROOT / "params/gpt2_small.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def shown_again(cstool, file: Path, folder: Path) -> str:
    """Return what is shown of a file, after a check that of what was shown the same is shown."""
    shown = cstool("config", "show", file).said
    (folder / "again.yaml").write_text(shown)
    assert cstool("config", "show", str(folder / "again.yaml")) == (0, shown, "")
    return shown


@pytest.mark.parametrize("name", ["params_gpt3_xl", "fc_mnist_legacy"])
def test_showing_what_was_shown_changes_nothing(cstool, tmp_path, name):
    shown_again(cstool, ROOT / "tests" / "interop" / f"{name}.yaml", tmp_path)


def test_show_fills_in_what_is_left_out(cstool, small, monkeypatch):
    monkeypatch.chdir(small.parent)
    init = yaml.safe_load(cstool("config", "show", small).stdout)["trainer"]["init"]
    assert init["model"]["layer_norm_epsilon"] == 1e-5
    given_and_filled_in = {"learning_rate": 0.1, "weight_decay": 0.0, "momentum": 0.0, "nesterov": False}
    assert init["optimizer"]["SGD"].items() >= given_and_filled_in.items()
    assert init["model_dir"] == str(small.parent / "checkpoints/small")


def test_show_applies_overrides_and_is_there_as_json(cstool, small):
    asked = ("config", "show", small, "--set", "trainer.init.seed=7", "trainer.init.loop.max_steps=3")
    shown = yaml.safe_load(cstool(*asked).said)
    assert (shown["trainer"]["init"]["seed"], shown["trainer"]["init"]["loop"]["max_steps"]) == (7, 3)
    assert cstool(*asked, "--json").document == shown


@pytest.mark.parametrize(
    ("path", "name"),
    [
        *((f"params/{name}.yaml", name) for name in ("gpt2_small", "llama3_8b", "fc_mnist")),
        ("tests/interop/params_falcon_7b.yaml", "falcon_7b"),
    ],
)
def test_stats(cstool, golden, path, name):
    golden(f"cli/config_stats/{name}.txt", cstool("config", "stats", str(ROOT / path)).said.replace(f"{ROOT}/", ""))


def test_stats_are_there_as_json(cstool, small):
    keys = ["max_position_embeddings=6", "filter_size=16", "use_ffn_bias=false"]
    overrides = [f"trainer.init.model.{key}" for key in keys]
    document = cstool("config", "stats", small, "--json", "--set", *overrides).document
    assert document["path"] == str(small)
    (found,) = document["trainers"]
    parts = {part.pop("name"): part for part in found.pop("parts")}
    inner_layer = {"role": "inner", "layers": 2, "weights": [{"count": 2, "shape": [16, 8]}], "parameters": 2 * 16 * 8}
    assert parts["transformer_decoder.layers.*.ffn.ffn.0.linear_layer"] == inner_layer
    layer = 4 * (8 * 8 + 8) + 2 * 16 * 8 + 2 * (8 + 8)
    embedding, inner = (11 + 6) * 8, 2 * layer + (8 + 8)
    linear, attention, output = 2 * 2 * 6 * (4 * 8 * 8 + 2 * 16 * 8), 2 * 2 * 2 * (6 * 7 // 2) * 8, 2 * 6 * 8 * 11
    flops = {"linear": linear, "attention": attention, "softmax_loss": output, "all": linear + attention + output}
    assert found == {
        "model": "gpt2",
        "tokens_per_sample": 6,
        "batch_size": 4,
        "parameters": {"all": embedding + inner, "embedding": embedding, "output": 0, "inner": inner},
        "bytes": {"weights": 4 * (embedding + inner), "gradients": 4 * (embedding + inner), "optimizer_state": 0},
        "flops_per_sample": {name: {"forward": count, "backward": 2 * count} for name, count in flops.items()},
        "flops_per_step": 4 * 3 * flops["all"],
        "rule_of_six_per_token": 6 * inner,
    }


def test_stats_follow_the_data_and_without_it_say_nothing_of_a_step(cstool, small, tmp_path):
    key = "trainer.fit.train_dataloader.max_sequence_length"
    document = cstool("config", "stats", small, "--json", "--set", f"{key}=5").document
    assert document["trainers"][0]["tokens_per_sample"] == 5
    (tmp_path / "x.yaml").write_text(yaml.safe_dump({"trainer": {"init": SMALL["trainer"]["init"]}}))
    assert "per step" not in cstool("config", "stats", tmp_path / "x.yaml").said
    document = cstool("config", "stats", tmp_path / "x.yaml", "--json").document
    assert document["trainers"][0]["flops_per_step"] is None


@pytest.mark.parametrize(
    ("optimizer", "state"),
    [
        ({"AdamW": {"learning_rate": 0.1}}, lambda shape: 2 * math.prod(shape)),
        ({"Adafactor": {"learning_rate": 0.1}}, sum),  # of rows and of columns
    ],
    ids=["AdamW", "Adafactor"],
)
def test_stats_count_the_state_that_each_weight_has(cstool, small, optimizer, state):
    data = yaml.safe_load(small.read_text())
    data["trainer"]["init"]["optimizer"] = optimizer
    small.write_text(yaml.safe_dump(data))
    (found,) = cstool("config", "stats", small, "--json").document["trainers"]
    weights = [weight for part in found["parts"] for weight in part["weights"]]
    numbers = sum(weight["count"] * state(weight["shape"]) for weight in weights)
    assert found["bytes"]["optimizer_state"] == 4 * numbers
    trained = found["parameters"]["all"]
    written = f"{numbers:,} x 4" if numbers % trained else f"{numbers // trained} x {trained:,} x 4"
    assert re.search(rf"^optimizer state +{re.escape(written)} ", cstool("config", "stats", small).said, re.MULTILINE)


@pytest.fixture
def phases(tmp_path: Path) -> Path:
    """A file of two trainers, the second with a wider model."""
    first, second = (copy.deepcopy(SMALL) for _ in range(2))
    second["trainer"]["init"]["model"]["hidden_size"] = 16
    for number, trainer in enumerate((first, second)):
        trainer["trainer"]["init"]["model_dir"] = str(tmp_path / f"model_{number}")
    path = tmp_path / "phases.yaml"
    path.write_text(yaml.safe_dump({"trainer": [first, second]}))
    return path


def test_every_trainer_of_a_list_is_validated_shown_and_counted(cstool, phases):
    assert cstool("config", "validate", phases) == (0, SUCCESS, "")
    refusal = cstool("config", "validate", phases, "--set", "trainer.1.init.model.num_heads=3").refusal
    assert "must be a multiple of num_heads (3), got 16" in refusal
    trainers = yaml.safe_load(shown_again(cstool, phases, phases.parent))["trainer"]
    assert [entry["trainer"]["init"]["model"]["hidden_size"] for entry in trainers] == [8, 16]
    lines = cstool("config", "stats", phases).stdout.splitlines()
    rest = "gpt2, 1,024 tokens per sample. All numbers are counts; nothing is measured."
    titles = [f"{phases}, trainer {number} of 2: {rest}" for number in (1, 2)]
    assert [line for line in lines if line.startswith(str(phases))] == titles
    found = cstool("config", "stats", phases, "--json").document["trainers"]
    assert [trainer["parameters"]["embedding"] for trainer in found] == [(11 + 1024) * 8, (11 + 1024) * 16]


def test_a_trainer_that_goes_on_from_another_model_is_an_error(cstool, phases):
    shared = [f"trainer.{number}.init.model_dir={phases.parent / 'one'}" for number in (0, 1)]
    outcome = cstool("config", "validate", phases, "--set", *shared)
    rule = "must have the weights of trainer.0, from whose last checkpoint it goes on"
    assert outcome.refusal == error(
        f"{phases}: trainer.1.init.model {rule}, and embedding_layer.word_embeddings.weight differs",
        "give each a model_dir of its own, or a fit.ckpt_path",
    )
    fresh = "trainer.1.init.checkpoint.autoload_last_checkpoint=false"
    assert cstool("config", "validate", phases, "--set", *shared, fresh) == (0, SUCCESS, "")


def test_a_trainer_that_finds_nothing_to_train_is_warned_of(cstool, phases):
    shared = [f"trainer.init.model_dir={phases.parent / 'one'}", "trainer.init.model.hidden_size=16"]
    steps = ["trainer.0.init.loop.max_steps=7", "trainer.1.init.loop.max_steps=7"]
    warning = (
        f"warning: {phases}: trainer.1 finds nothing to train: its max_steps is 7, and trainer.0, from whose end it "
        "goes on, comes to 7\n"
    )
    outcome = cstool("config", "validate", phases, "--set", *shared, *steps)
    assert outcome == (0, warning + SUCCESS, "")
    more = "trainer.1.init.loop.max_steps=8"
    assert cstool("config", "validate", phases, "--set", *shared, *steps, more) == (0, SUCCESS, "")


@pytest.mark.parametrize("path", LEGACY_FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_converted_file_asks_for_the_same(cstool, tmp_path, path, elsewhere):
    original = tmp_path / "here" / path.name
    original.parent.mkdir()
    original.write_text(path.read_text())
    target = tmp_path / "v2.yaml" if elsewhere else original.with_name(f"{path.stem}_v2.yaml")
    out = ["--out", target] if elsewhere else []
    assert cstool("config", "convert_legacy", original, *out).said == f"Converted {original} to {target}\n"
    assert "warning" not in cstool("config", "validate", target).said
    shown, expected = (yaml.safe_load(cstool("config", "show", p).said)["trainer"] for p in (target, original))
    for trainer in (shown, expected):
        if trainer["init"]["model_dir"].startswith(str(Path("checkpoints").absolute())):
            del trainer["init"]["model_dir"]  # by default named after the file
    assert shown == expected


def test_a_file_with_mistakes_is_converted_with_a_warning(cstool, tmp_path):
    file, target = tmp_path / "x.yaml", tmp_path / "x_v2.yaml"
    file.write_text("model: {name: gpt2, hidden_sze: 8}\noptimizer: {optimizer_type: sgd, learning_rate: 0.1}\n")
    assert cstool("config", "convert_legacy", file) == (
        0,
        f"Converted {file} to {target}\nwarning: {target} needs mending:\n"
        f"{target}:6: trainer.init.model.hidden_sze is not a known key\nhint: did you mean hidden_size?\n",
        "",
    )


@pytest.mark.parametrize("folder", ["", ".", "/"])
def test_a_folder_without_a_name_is_no_file_of_the_older_layout(cstool, folder):
    refusal = cstool("config", "convert_legacy", folder).refusal
    assert refusal == error(f"{folder or '.'}: must be a YAML file, got a folder")


OLDER = "DIR/x.yaml: must be in the older layout (train_input, model, optimizer, runconfig), got"
NOT_CONVERTED = rows("""\
taken.yaml LEGACY => DIR/taken.yaml: must be a new file, found one there
    hint: remove it, or name another file with --out
no/x.yaml LEGACY => DIR/no/x.yaml: cannot be written: No such file or directory\nhint: there is no folder DIR/no
y.yaml {model: {name: gpt2}, trainer: {init: {}}} =>
    DIR/x.yaml:1: model is of the older layout, trainer (line 1) of the trainer layout: a file is in one of them
y.yaml trainer: {init: {}} => OLDER the trainer layout\nhint: it needs no conversion
y.yaml a: 1 => OLDER neither layout
""")


@pytest.mark.parametrize(("written", "message"), NOT_CONVERTED)
def test_what_cannot_be_converted_is_one_error_and_nothing_is_written(cstool, tmp_path, written, message):
    target, _, text = written.partition(" ")
    (tmp_path / "taken.yaml").write_text("precious")
    (tmp_path / "x.yaml").write_text(text.replace("LEGACY", LEGACY_FILES[0].read_text()))
    outcome = cstool("config", "convert_legacy", tmp_path / "x.yaml", "-o", tmp_path / target)
    assert outcome.refusal.replace(str(tmp_path), "DIR") == error(message.replace("OLDER", OLDER))
    assert {path.name for path in tmp_path.iterdir()} == {"taken.yaml", "x.yaml"}
    assert (tmp_path / "taken.yaml").read_text() == "precious"


def test_samples_are_as_long_as_their_sinks_make_them(cstool, small):
    sinks = "trainer.fit.train_dataloader.data_transforms=[{name: add_sink_tokens, num_sink_tokens: 24}]"
    loader = "trainer.fit.train_dataloader={data_processor: GptHDF5MapDataProcessor, data_dir: x, batch_size: 2}"
    key = "trainer.fit.train_dataloader.max_sequence_length"
    document = cstool("config", "stats", small, "--set", loader, sinks, f"{key}=1000", "--json").document
    assert document["trainers"][0]["tokens_per_sample"] == 1024
    rule = "must be at most the max_position_embeddings of the model (1024) less 24 sink tokens, got 1001"
    refusal = cstool("config", "validate", small, "--set", loader, sinks, f"{key}=1001").refusal
    assert refusal == error(f"--set {key}=1001: {rule}")
    refusal = cstool("config", "validate", small, "--set", loader, sinks.replace("24", "1024")).refusal
    assert "must leave tokens of the max_position" in refusal


def test_the_keys_are_those_of_the_documentation(cstool, golden):
    golden("../../docs/model/keys.md", cstool("config", "keys").said)
    found = cstool("config", "keys", "--json").document
    loop = next(table for table in found["trainer"] if table["places"] == ["trainer.init.loop"])
    steps = {"name": "max_steps", "fate": "acted on", "values": "a whole number from 1", "default": ""}
    assert steps in loop["keys"]
    runconfig = next(table for table in found["legacy"] if table["places"] == ["runconfig"])
    assert {**steps, "values": "as trainer.init.loop.max_steps"} in runconfig["keys"]
