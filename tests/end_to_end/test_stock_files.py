"""The stock params files: they load, and describe models of exactly the size that docs/models.md says."""

import json
import re
from pathlib import Path

import pytest

from cstool.ir import Graph
from cstool.models import build_graph
from cstool.params import FcMnistParams, Params, load_params
from tests.end_to_end.refusals import Outcome

PROJECT = Path(__file__).parents[2]
STOCK_FILES = sorted((PROJECT / "params").glob("*.yaml"))
INTEROP_FILES = sorted((PROJECT / "tests" / "interop").glob("*.yaml"))

# A GPT: (V + S) H embeddings; L layers of 12 H^2 (attention 4, feed-forward 8) + 13 H (biases 4 + 5, norms 4); a last
# norm of 2 H. docs/models.md has the terms one by one.
PARAMETERS = {
    "fc_mnist": (235_146, (784 * 256 + 256) + (256 * 128 + 128) + (128 * 10 + 10)),
    "gpt_tiny": (842_496, (256 + 128) * 128 + 4 * (12 * 128**2 + 13 * 128) + 2 * 128),
    "gpt2_small": (124_439_808, (50257 + 1024) * 768 + 12 * (12 * 768**2 + 13 * 768) + 2 * 768),
    "gpt3_xl": (1_315_723_264, (50257 + 2048) * 2048 + 24 * (12 * 2048**2 + 13 * 2048) + 2 * 2048),
    "gpt3_2p7b": (2_651_553_280, (50257 + 2048) * 2560 + 32 * (12 * 2560**2 + 13 * 2560) + 2 * 2560),
    "gpt3_6p7b": (6_658_404_352, (50257 + 2048) * 4096 + 32 * (12 * 4096**2 + 13 * 4096) + 2 * 4096),
    "gpt3_13b": (12_853_386_240, (50257 + 2048) * 5120 + 40 * (12 * 5120**2 + 13 * 5120) + 2 * 5120),
    "gpt3_175b": (174_604_259_328, (50257 + 2048) * 12288 + 96 * (12 * 12288**2 + 13 * 12288) + 2 * 12288),
    "megatron_8b": (8_314_143_744, (50257 + 1024) * 3072 + 72 * (12 * 3072**2 + 13 * 3072) + 2 * 3072),
    "tnlg_17b": (17_176_845_728, (50257 + 1024) * 4256 + 78 * (12 * 4256**2 + 13 * 4256) + 2 * 4256),
    "msft_1t": (1_008_014_617_600, (50257 + 2048) * 25600 + 128 * (12 * 25600**2 + 13 * 25600) + 2 * 25600),
    "gpt_120t": (120_006_530_700_000, (50257 + 2048) * 10**5 + 1000 * (12 * 10**10 + 13 * 10**5) + 2 * 10**5),
    # The same below with words that are the output layer, too, and two heads of keys and values of 32.
    "llama_tiny": (771_200, 256 * 128 + 4 * (2 * 128**2 + 2 * 128 * 2 * 32 + 3 * 128 * 352 + 2 * 128) + 128),
    # Words and output layer; queries and output 2 H^2, 8 heads of keys and values of 128, three matrices of the gated
    # feed-forward part, two norms without bias; last norm.
    "llama3_8b": (
        8_030_261_248,
        2 * 128256 * 4096 + 32 * (2 * 4096**2 + 2 * 4096 * 8 * 128 + 3 * 4096 * 14336 + 2 * 4096) + 4096,
    ),
}

TRILLIONS = {"msft_1t": 1, "gpt_120t": 120}


def graph_of(params: Params) -> Graph:
    return build_graph(params.model, getattr(params.model, "max_position_embeddings", None))


def test_every_stock_file_is_counted_here():
    assert {path.stem for path in STOCK_FILES} == PARAMETERS.keys()


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_stock_file_describes_a_model_of_the_stated_size(name):
    stated, arithmetic = PARAMETERS[name]
    assert stated == arithmetic
    assert graph_of(load_params(PROJECT / "params" / f"{name}.yaml")).parameter_count == stated


@pytest.mark.parametrize("name", TRILLIONS)
def test_the_models_of_trillions_reach_them(name):
    assert TRILLIONS[name] <= PARAMETERS[name][0] / 10**12 < 1.01 * TRILLIONS[name]


@pytest.mark.parametrize("path", STOCK_FILES, ids=lambda path: path.stem)
def test_a_schedule_ends_where_training_does_or_stays_at_its_end(path):
    params = load_params(path)
    (schedule,) = params.schedulers
    steps = params.loop.max_steps
    assert steps is not None
    if path.stem == "tnlg_17b":  # stopped at three fifths of its cosine
        assert schedule.rate(500_000) == 1.0e-5 < schedule.rate(steps)
    else:
        end = schedule.rate(10**9)
        assert schedule.rate(steps) == end < schedule.rate(steps // 2)


@pytest.mark.parametrize("path", STOCK_FILES, ids=lambda path: path.stem)
def test_the_command_validates_a_stock_file_without_its_data(cstool, path):
    assert cstool("config", "validate", path) == Outcome(0, "Config validation was successful!\n", "")


@pytest.mark.parametrize("path", STOCK_FILES, ids=lambda path: path.stem)
def test_the_command_counts_a_stock_file(cstool, path):
    stated, _ = PARAMETERS[path.stem]
    outcome = cstool("config", "stats", path, "--json")
    assert outcome.code == 0
    (trainer,) = json.loads(outcome.stdout)["trainers"]
    assert trainer["parameters"]["all"] == sum(part["parameters"] for part in trainer["parts"]) == stated
    assert f"{stated:,}" in cstool("config", "stats", path).stdout


def table_of_models() -> dict[str, list[str]]:
    """Return the rows of the table of docs/models.md: file -> the other cells."""
    lines = (PROJECT / "docs" / "models.md").read_text(encoding="utf-8").splitlines()
    header = "| file | layers | width | heads | embeddings | one layer | last norm | parameters | published |"
    start = lines.index(header) + 2
    rows: dict[str, list[str]] = {}
    for line in lines[start : lines.index("", start)]:
        file, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        assert file.strip("`") not in rows
        rows[file.strip("`")] = cells
    return rows


ROWS = table_of_models()


def test_the_table_has_all_stock_and_interop_files():
    assert ROWS.keys() == {str(path.relative_to(PROJECT)) for path in (*STOCK_FILES, *INTEROP_FILES)}


@pytest.mark.parametrize("file", ROWS)
def test_a_row_of_the_table_agrees_with_its_file(file):
    layers, width, heads, embeddings, layer, last_norm, parameters, _ = ROWS[file]
    params = load_params(PROJECT / file)
    graph = graph_of(params)
    assert f"{graph.parameter_count:,}" == parameters
    model = params.model
    if isinstance(model, FcMnistParams):
        assert layers == str(len(model.layer_sizes))
        assert width == ", ".join(map(str, dict.fromkeys(model.layer_sizes)))
        assert (heads, embeddings, layer, last_norm) == ("", "", "", "")
        return
    assert [layers, width, heads] == [f"{n:,}" for n in (model.num_hidden_layers, model.hidden_size, model.num_heads)]
    sizes = {name: weight.size for name, weight in graph.weights.items()}
    of_layer = sum(size for name, size in sizes.items() if ".layers.0." in name)
    of_norm = sum(size for name, size in sizes.items() if name.startswith("transformer_decoder.norm."))
    of_embeddings = sum(size for name, size in sizes.items() if not name.startswith("transformer_decoder."))
    assert [embeddings, layer, last_norm] == [f"{size:,}" for size in (of_embeddings, of_layer, of_norm)]
    assert of_embeddings + model.num_hidden_layers * of_layer + of_norm == graph.parameter_count


@pytest.mark.parametrize("file", ROWS)
def test_a_published_count_is_the_count_rounded_or_explained(file):
    parameters, published = ROWS[file][-2:]
    explained = re.findall(r"\(([a-z])\)", published)
    text = (PROJECT / "docs" / "models.md").read_text(encoding="utf-8")
    assert all(f"\n- ({letter}) " in text for letter in explained)
    for number, unit in re.findall(r"(\d+(?:\.\d+)?)([MBT])\b", published):
        digits = len(number.partition(".")[2])
        rounded = f"{int(parameters.replace(',', '')) / 10 ** {'M': 6, 'B': 9, 'T': 12}[unit]:.{digits}f}"
        assert rounded == number or explained, f"{parameters} is {rounded}{unit}"
