"""The stock params files, and the vendor's own, load and have the sizes in docs/model/models.md."""

import hashlib
import re
from pathlib import Path

import pytest

from cstool.model.graphs import build_graph, declared_form
from cstool.model.ir import Graph
from cstool.model.params import EncoderDecoderParams, EncoderParams, FcMnistParams, VisionTransformerParams, load_params
from cstool.model.sparsity import assign_groups, most_kept

PROJECT = Path(__file__).parents[2]
INTEROP = PROJECT / "tests" / "interop"
STOCK_FILES = sorted((PROJECT / "params").glob("*.yaml"))
INTEROP_FILES = sorted(INTEROP.glob("*.yaml"))
FILES = [str(path.relative_to(PROJECT)) for path in (*STOCK_FILES, *INTEROP_FILES)]


@pytest.mark.parametrize("path", STOCK_FILES, ids=lambda path: path.stem)
def test_a_schedule_ends_where_training_does_or_stays_at_its_end(path):
    params = load_params(path)
    (schedule,) = params.schedulers
    steps = params.loop.max_steps
    assert steps is not None
    if path.stem == "tnlg_17b":  # stopped at three fifths of its cosine
        assert schedule.rate(500_000) == 1.0e-5 < schedule.rate(steps)
    elif path.stem == "t5_11b":  # falls without an end
        assert schedule.rate(steps - 1) == pytest.approx(steps**-0.5)
    else:
        end = schedule.rate(10**9)
        assert schedule.rate(steps) == end < schedule.rate(steps // 2)


def table_of_models() -> dict[str, list[str]]:
    """Return the rows of the table of docs/model/models.md: file -> the other cells."""
    lines = (PROJECT / "docs" / "model" / "models.md").read_text(encoding="utf-8").splitlines()
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
    assert ROWS.keys() == set(FILES)


def count_of(file: str) -> int:
    return int(ROWS[file][6].replace(",", ""))


def test_the_models_of_trillions_reach_them():
    for name, trillions in {"msft_1t": 1, "gpt_120t": 120}.items():
        assert trillions <= count_of(f"params/{name}.yaml") / 10**12 < 1.01 * trillions


@pytest.mark.parametrize("file", FILES)
def test_the_commands_validate_and_count_a_file_without_its_data(cstool, file):
    outcome = cstool("config", "validate", PROJECT / file)
    assert (outcome.code, outcome.stdout.splitlines()[-1]) == (0, "Config validation was successful!")
    assert outcome.stdout.count("\n") == 1 or file.startswith("tests/"), "notes"
    (trainer,) = cstool("config", "stats", PROJECT / file, "--json").document["trainers"]
    assert trainer["parameters"]["all"] == sum(part["parameters"] for part in trainer["parts"]) == count_of(file)
    assert f"{count_of(file):,}" in cstool("config", "stats", PROJECT / file).stdout


@pytest.mark.parametrize("file", ROWS)
def test_a_row_of_the_table_agrees_with_its_file(file):
    layers, width, heads, embeddings, layer, last_norm, parameters, _ = ROWS[file]
    params = load_params(PROJECT / file)
    graph = build_graph(params.model, declared_form(params))
    assert f"{graph.parameter_count:,}" == parameters
    model = params.model
    if isinstance(model, FcMnistParams):
        assert layers == str(len(model.layer_sizes))
        assert width == ", ".join(map(str, dict.fromkeys(model.layer_sizes)))
        assert (heads, embeddings, layer, last_norm) == ("", "", "", "")
        return
    if isinstance(model, EncoderDecoderParams):
        check_two_stacks(model, graph, ROWS[file])
        return
    assert [layers, width, heads] == [f"{n:,}" for n in (model.num_hidden_layers, model.hidden_size, model.num_heads)]
    sizes = {name: weight.size for name, weight in graph.weights.items()}
    of_layer = sum(size for name, size in sizes.items() if ".layers.0." in name)
    if isinstance(model, EncoderParams | VisionTransformerParams):
        of_embeddings = sum(size for name, size in sizes.items() if "embed" in name)
        of_norm = sum(size for name, size in sizes.items() if "embed" not in name and ".layers." not in name)
    else:
        of_norm = sum(size for name, size in sizes.items() if name.startswith("transformer_decoder.norm."))
        of_embeddings = sum(size for name, size in sizes.items() if not name.startswith("transformer_decoder."))
    assert [embeddings, layer, last_norm] == [f"{size:,}" for size in (of_embeddings, of_layer, of_norm)]
    if model.name in ("gpt2", "gpt3") and not model.moe.is_mixture:  # docs/model/models.md has the terms one by one
        assert of_layer == 12 * model.hidden_size**2 + 13 * model.hidden_size
    assert of_embeddings + model.num_hidden_layers * of_layer + of_norm == graph.parameter_count


def check_two_stacks(model: EncoderDecoderParams, graph: Graph, row: list[str]) -> None:
    """Compare a row whose cells have what is of the encoder, and then of the decoder."""
    counts = model.encoder_num_hidden_layers, model.decoder_num_hidden_layers
    sizes = {name: weight.size for name, weight in graph.weights.items()}
    embeddings = sum(size for name, size in sizes.items() if "_embeddings." in name)
    layers = [
        sum(size for name, size in sizes.items() if name.startswith(f"{stack}.layers.0."))
        for stack in ("encoder", "decoder")
    ]
    norms = sum(size for name, size in sizes.items() if re.match(r"(en|de)coder\.norm\.", name))
    both = [" + ".join(f"{n:,}" for n in pair) for pair in (counts, layers)]
    sides = [f"{model.hidden_size:,}", f"{model.num_heads:,}", f"{embeddings:,}"]
    assert row[:6] == [both[0], *sides, both[1], f"{norms:,}"]
    products = (count * size for count, size in zip(counts, layers, strict=True))
    assert embeddings + sum(products) + norms == graph.parameter_count


@pytest.mark.parametrize("file", ROWS)
def test_a_published_count_is_the_count_rounded_or_explained(file):
    parameters, published = ROWS[file][-2:]
    explained = re.findall(r"\(([a-z])\)", published)
    text = (PROJECT / "docs" / "model" / "models.md").read_text(encoding="utf-8")
    assert all(f"\n- ({letter}) " in text for letter in explained)
    for number, unit in re.findall(r"(\d+(?:\.\d+)?)([MBT])\b", published):
        digits = len(number.partition(".")[2])
        rounded = f"{int(parameters.replace(',', '')) / 10 ** {'M': 6, 'B': 9, 'T': 12}[unit]:.{digits}f}"
        assert rounded == number or explained, f"{parameters} is {rounded}{unit}"


def test_the_interop_files_are_the_published_ones_byte_for_byte():
    readme = (INTEROP / "README.md").read_text(encoding="utf-8")
    published = dict(re.findall(r"^\| `(\S+\.yaml)` \|.*\| `([0-9a-f]{40})` \|$", readme, re.MULTILINE))
    contents = {path.name: path.read_bytes() for path in INTEROP_FILES}
    assert {
        name: hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        for name, content in contents.items()
    } == published


@pytest.mark.parametrize("name", ["params_gpt3_125m_rigl75", "params_gpt3_125m_static75"])
def test_the_filters_of_a_sparse_file_name_the_six_matrices_of_every_layer(name):
    """And of each there is room for a quarter at any time of the run, rounded down."""
    params = load_params(INTEROP / f"{name}.yaml")
    graph = build_graph(params.model, 2048)
    attention = [f"self_attn.proj_{part}_dense_layer" for part in ("q", "k", "v", "output")]
    matrices = [*attention, "ffn.ffn.0.linear_layer", "ffn.ffn.1.linear_layer"]
    groups = assign_groups(params.sparsity, graph, params.sparsity_place)
    assert groups == {
        f"transformer_decoder.layers.{layer}.{matrix}.weight": 0 for layer in range(12) for matrix in matrices
    }
    for weight in groups:
        rows, columns = graph.weights[weight].shape
        kept = most_kept(params.sparsity[0], (rows, columns), params.loop.max_steps)
        assert (rows * columns, kept) in [(768 * 768, 147_456), (4 * 768 * 768, 589_824)]
