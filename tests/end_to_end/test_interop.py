"""The vendor's own params files: they are the published ones, load as they are, and give models of the known size."""

import hashlib
import json
import re
from pathlib import Path

import pytest

from cstool.models import build_graph
from cstool.params import load_params
from cstool.sparsity import assign_groups, most_kept

INTEROP = Path(__file__).parents[1] / "interop"
FILES = sorted(INTEROP.glob("*.yaml"))

# Of Falcon: embedding, which is the output layer too; queries and output, one head of keys and values of 64, the
# feed-forward part, one norm; last norm. Of the others: as in test_stock_files.py.
PARAMETERS = {
    "cerebras_gpt_111m": (111_050_496, (50257 + 2048) * 768 + 10 * (12 * 768**2 + 13 * 768) + 2 * 768),
    "fc_mnist_legacy": (62_710, (784 * 50 + 50) + 9 * (50 * 50 + 50) + (50 * 10 + 10)),
    "fc_mnist_trainer": (62_710, (784 * 50 + 50) + 9 * (50 * 50 + 50) + (50 * 10 + 10)),
    "gpt2_small_legacy": (125_226_240, (50257 + 2048) * 768 + 12 * (12 * 768**2 + 13 * 768) + 2 * 768),
    "params_falcon_7b": (
        6_921_720_704,
        65024 * 4544 + 32 * (2 * 4544**2 + 2 * 4544 * 64 + 2 * 4544 * 18176 + 2 * 4544) + 2 * 4544,
    ),
    "params_gpt3_125m_rigl75": (125_226_240, (50257 + 2048) * 768 + 12 * (12 * 768**2 + 13 * 768) + 2 * 768),
    "params_gpt3_125m_static75": (125_226_240, (50257 + 2048) * 768 + 12 * (12 * 768**2 + 13 * 768) + 2 * 768),
    "params_gpt3_xl": (1_315_723_264, (50257 + 2048) * 2048 + 24 * (12 * 2048**2 + 13 * 2048) + 2 * 2048),
    "params_llama3p1_8b_msl_8k": (
        8_030_261_248,
        2 * 128256 * 4096 + 32 * (2 * 4096**2 + 2 * 4096 * 8 * 128 + 3 * 4096 * 14336 + 2 * 4096) + 4096,
    ),
}


def test_every_interop_file_is_counted_here():
    assert {path.stem for path in FILES} == PARAMETERS.keys()


def test_the_interop_files_are_the_published_ones_byte_for_byte():
    readme = (INTEROP / "README.md").read_text(encoding="utf-8")
    published = dict(re.findall(r"^\| `(\S+\.yaml)` \|.*\| `([0-9a-f]{40})` \|$", readme, re.MULTILINE))
    contents = {path.name: path.read_bytes() for path in FILES}
    assert {
        name: hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        for name, content in contents.items()
    } == published


@pytest.mark.parametrize("name", PARAMETERS)
def test_an_interop_file_describes_a_model_of_the_known_size(name):
    known, arithmetic = PARAMETERS[name]
    assert known == arithmetic
    model = load_params(INTEROP / f"{name}.yaml").model
    graph = build_graph(model, getattr(model, "max_position_embeddings", None))
    assert graph.parameter_count == known


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_command_validates_an_interop_file_without_its_data(cstool, path):
    outcome = cstool("config", "validate", path)
    assert outcome.code == 0, outcome.stderr
    assert outcome.stdout.splitlines()[-1] == "Config validation was successful!"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_command_counts_an_interop_file(cstool, path):
    known, _ = PARAMETERS[path.stem]
    outcome = cstool("config", "stats", path, "--json")
    assert outcome.code == 0, outcome.stderr
    (trainer,) = json.loads(outcome.stdout)["trainers"]
    assert trainer["parameters"]["all"] == sum(part["parameters"] for part in trainer["parts"]) == known
    assert f"{known:,}" in cstool("config", "stats", path).stdout


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
