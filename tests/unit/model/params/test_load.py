"""A file is read as a whole: its layout is judged first, then everything in it at once."""

import copy
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cstool.foundation.errors import ParamsError
from cstool.model.params import Params, load_all_params, load_params
from tests.unit.model.params.conftest import each_message, told

ROOT = Path(__file__).parents[4]
MANY_ERRORS = """\
trainer:
  init:
    model:
      name: gpt2
      num_heads: 12
      hidden_size: 770
      vocab_sise: 256
      memory_tokens: 64
      use_ffn_bias: "true"
    optimizer:
      adamw: {betas: [0.9, 0.95], epsilon: 1e-8}
    schedulers:
    - SequentialLR:
        schedulers:
        - LinearLR: {initial_learning_rate: 0, end_learning_rate: 1e-3, total_iter: 10}
    sparsity: 1.3
    loop: {max_steps: 0}
  fit:
    train_dataloader: &data
      data_processor: GptHDF5MapDataProcessor
      data_dir: data
      batch_size: -1
    val_dataloader: *data
  validate:
    val_dataloader: *data
  validat: 5
"""
ERRORS = """\
6: trainer.init.model.hidden_size must be a multiple of num_heads (12), got 770
hint: 768 and 780 are the nearest
7: trainer.init.model.vocab_sise is not a known key
hint: did you mean vocab_size?
8: not supported: trainer.init.model.memory_tokens: 64
hint: leave it out
9: trainer.init.model.use_ffn_bias must be true or false, got 'true'
11: trainer.init.optimizer.adamw.epsilon is not a known key
hint: did you mean eps?
15: trainer.init.schedulers.0.SequentialLR.schedulers.0.LinearLR.total_iters is missing
15: trainer.init.schedulers.0.SequentialLR.schedulers.0.LinearLR.total_iter is not a known key
hint: did you mean total_iters?
16: trainer.init.sparsity must be at least 0 and less than 1, got 1.3
17: trainer.init.loop.max_steps must be at least 1, got 0
22: trainer.fit.train_dataloader.batch_size must be at least 1, got -1
26: trainer.validat is not a known key
hint: did you mean validate?"""


def test_all_errors_of_a_file_come_at_once_in_its_order_and_a_shared_one_once(failure):
    assert failure(MANY_ERRORS) == told(ERRORS)


@each_message("""\
{attention_sliding_window_length: 8, attention_sink_tokens: 4} => attention_sink_tokens apply_attention_sinks
{attention_chunk_size: 8, attention_vertical_column_spacing: 4, attention_vertical_column_width: 1} =>
    attention_chunk_size apply_attention_pattern
    attention_vertical_column_spacing apply_attention_pattern
    attention_vertical_column_width apply_attention_pattern
attention_qk_norm_layer: rmsnorm => attention_qk_norm_layer apply_attention_qk_norm
""")
def test_what_of_attention_is_read_in_vain_is_noted(load, written, message):
    in_vain = [line.split() for line in message.splitlines()]
    model = {"name": "llama", **written}
    assert load({"init.model": model}).notes == tuple(
        f"trainer.init.model.{key}: accepted, no effect: as at the vendor; {switch}: true has one"
        for key, switch in in_vain
    )
    assert load({"init.model": {**model, **{switch: True for _, switch in in_vain}}}).notes == ()


def test_a_note_about_a_shared_dataloader_comes_once(load):
    text = """\
trainer:
  init: {model: {name: gpt2}, optimizer: {SGD: {lr: 0.1}}}
  fit:
    val_dataloader: &val {data_processor: GptHDF5MapDataProcessor, data_dir: d, batch_size: 1, num_workers: 8}
  validate:
    val_dataloader: *val
  validate_all:
    val_dataloaders: *val
"""
    assert load(text).notes == ("trainer.fit.val_dataloader.num_workers: accepted, no effect",)


LIST = """\
trainer:
- trainer:
    init: {model: {name: gpt2}, optimizer: {SGD: {lr: 0.1}}, seed: 5}
- init: {model: {name: gpt2}, optimizer: {SGD: {lr: 0.2}}}
"""


def load_list(folder: Path, text: str = LIST, **options: Any) -> tuple[Params, ...]:
    (folder / "x.yaml").write_text(text)
    return load_all_params("x.yaml", **options)


def test_each_entry_of_a_list_is_a_trainer_bare_or_not_and_a_file_of_one_is_a_list_of_one(folder):
    assert [(p.seed, p.learning_rate(0)) for p in load_list(folder)] == [(5, 0.1), (1, 0.2)]
    text = "trainer:\n  init: {model: {name: gpt2}, optimizer: {SGD: {lr: 0.1}}}\n"
    assert load_list(folder, text) == (load_params("x.yaml"),)


def test_a_key_without_a_number_is_that_of_all_trainers_which_share_nothing_and_one_with_a_number_of_one(folder):
    params = load_list(folder, overrides=["trainer.init.seed=7"], flags={"trainer.init.loop.max_steps": ("--m", 3)})
    assert [(p.seed, p.loop.max_steps) for p in params] == [(7, 3), (7, 3)]
    assert [p.seed for p in load_list(folder, overrides=["trainer.1.init.seed=7"])] == [5, 7]
    text = LIST.replace("optimizer: {SGD: {lr: 0.1}}", "optimizer: &o {SGD: {lr: 0.1}}")
    text = text.replace("optimizer: {SGD: {lr: 0.2}}", "optimizer: *o")
    params = load_list(folder, text, overrides=["trainer.init.loop={max_steps: 3}", "trainer.1.init.loop.max_steps=4"])
    assert [p.loop.max_steps for p in params] == [3, 4]


def test_all_errors_of_all_trainers_come_at_once_and_an_entry_that_is_none_is_one_at_its_line(folder):
    text = LIST.replace("0.1", "-1").replace("gpt2", "gptx").replace("0.2", "-2")
    with pytest.raises(ParamsError) as caught:
        load_list(folder, text, overrides=["trainer.init.seed=-3"])
    assert [message.partition(" must")[0] for message, _ in caught.value.problems] == [
        "x.yaml:3: trainer.0.init.model.name",
        "x.yaml:3: trainer.0.init.optimizer.SGD.lr",
        "x.yaml:4: trainer.1.init.model.name",
        "x.yaml:4: trainer.1.init.optimizer.SGD.lr",
        "--set trainer.init.seed=-3:",
    ]
    with pytest.raises(ParamsError) as caught:
        load_list(folder, LIST + "- 5\n- {fit: {}}\n")
    assert str(caught.value) == ("x.yaml:5: trainer.2 must be a mapping, got 5\nx.yaml:6: trainer.3.init is missing")


def test_a_list_of_one_trainer_is_that_trainer_and_its_lines_are_known(load, failure):
    text = "trainer:\n- trainer:\n    init: {model: {name: gpt2}, optimizer: {SGD: {lr: 0.1}}, seed: 5}\n"
    assert load(text, overrides=["trainer.init.loop.max_steps=3"]).seed == 5
    message = "x.yaml:3: trainer.0.init.optimizer.SGD.lr must be at least 0, got -1"
    assert failure(text.replace("0.1", "-1")) == message


OLDER = "is of the older layout"
ONE_LAYOUT = "of the trainer layout: a file is in one of them"
SEVERAL = "must be one trainer, got a list of 2\nhint: give each phase a file of its own"
FILES = [
    ("- trainer\n", "1: the file must hold a mapping, got ['trainer']"),
    ("just text\n", "1: the file must hold a mapping, got 'just text'"),
    ("trianer: {}\n", "1: trianer is not a known key\nhint: did you mean trainer?"),
    ("{}\n", "1: trainer is missing"),
    ("trainer: 5\n", "1: trainer must be a mapping, got 5"),
    ("trainer:\n", "1: trainer.init is missing"),
    ("trainer:\n  fit: {}\n", "1: trainer.init is missing"),
    ("trainer:\n  init: 5\n", "2: trainer.init must be a mapping, got 5"),
    ("trainer:\n  init: {}\n", "2: trainer.init.model is missing"),
    ("trainer: {init: {}}\nmodel: {}\n", f"2: model {OLDER}, trainer (line 1) {ONE_LAYOUT}"),
    ("model: {}\nfit: {}\n", f"1: model {OLDER}, fit (line 2) {ONE_LAYOUT}"),
    (
        "trainer: {init: {}}\nmodels: {}\n",
        "1: trainer.init.model is missing\n2: models is not a known key\nhint: all keys stand below trainer",
    ),
    ("trainer:\n- {trainer: {}}\n- {trainer: {}}\n", f"1: trainer {SEVERAL}"),
    ("trainer: []\n", "1: trainer must hold at least one trainer, got []"),
]


@pytest.mark.parametrize(("text", "message"), FILES)
def test_a_file_that_is_not_in_the_trainer_layout_is_an_error(failure, text, message):
    assert failure(text) == told(message)


def test_a_list_from_the_command_line_is_judged_like_one_of_the_file(failure):
    none = "--set trainer=[]: must hold at least one trainer, got []"
    assert failure({}, overrides=["trainer=[]"]) == none
    assert failure({}, overrides=["trainer=[1, 2]"]) == f"--set trainer=[1, 2]: {SEVERAL}"


@each_message("""\
fit: [1] => 12: trainer.fit must be a mapping, got [1]
validate: [1] => 17: trainer.validate must be a mapping, got [1]
init.schedulers: [1] => 13: trainer.init.schedulers.0 must be a mapping with one name, got 1
init.precision: [1] => 12: trainer.init.precision must be a mapping, got [1]
""")
def test_a_list_where_a_mapping_belongs_is_an_error(failure, written, message):
    assert failure(written).partition("\nhint: ")[0] == told(message)


def test_importing_params_loads_nothing_heavy():
    code = "import sys, cstool.model.params; print(*sorted({'numpy', 'h5py', 'numba', 'scipy'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


def _paths(data: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """All keys and indices of a file."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield (*path, key)
        yield from _paths(value, (*path, key))


JUNK: list[Any] = [None, "x", "", -1, 0.5, True, [], {}, [1], {"a": 1}, float("inf"), 10**400]
INTEROP = sorted((ROOT / "tests" / "interop").glob("*.yaml"))


@pytest.mark.parametrize("path", [ROOT / "params" / "gpt_tiny.yaml", *INTEROP], ids=lambda path: path.name)
def test_whatever_stands_wherever_is_accepted_or_a_params_error(tmp_path, path):
    whole = yaml.safe_load(path.read_text())
    rng = random.Random(path.name)
    refused = 0
    for key in _paths(whole):
        for junk in rng.sample(JUNK, 6 if path not in INTEROP else 1):
            data = copy.deepcopy(whole)
            holder = data
            for part in key[:-1]:
                holder = holder[part]
            holder[key[-1]] = junk
            (tmp_path / "x.yaml").write_text(yaml.dump(data, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper)))
            try:
                load_params(tmp_path / "x.yaml")
            except ParamsError:
                refused += 1
    assert refused > 0
