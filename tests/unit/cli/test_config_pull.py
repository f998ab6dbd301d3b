"""`cstool config pull` and `cstool model`."""

from pathlib import Path

import pytest

from cstool.model.graphs import build_graph, declared_form
from cstool.model.params import load_params, stock_names, stock_text
from tests.end_to_end.refusals import error, rows

pytestmark = pytest.mark.usefixtures("folder")


def test_a_stock_file_is_written_into_the_working_directory(cstool, tmp_path):
    said = "gpt_tiny.yaml: written. `cstool run --params gpt_tiny.yaml` trains it.\n"
    assert cstool("config", "pull", "gpt_tiny") == (0, said, "")
    assert Path("gpt_tiny.yaml").read_text().splitlines()[:45] == stock_text("gpt_tiny").splitlines()[:45]
    assert load_params("gpt_tiny.yaml").resolved() == load_params("gpt_tiny").resolved()


def test_into_a_folder_or_a_file_with_other_values(cstool):
    Path("here").mkdir()
    assert cstool("config", "pull", "llama_tiny", "--out", "here").code == 0
    assert load_params("here/llama_tiny.yaml").resolved() == load_params("llama_tiny").resolved()
    typed = ("--set", "trainer.init.loop.max_steps=3", "trainer.init.seed=2")
    assert cstool("config", "pull", "llama_tiny", "--out", "here/own.yaml", *typed).code == 0
    found = load_params("here/own.yaml")
    assert (found.loop.max_steps, found.seed) == (3, 2)


def test_a_file_that_is_there_stays_but_where_it_is_forced(cstool):
    Path("gpt_tiny.yaml").write_text("mine\n")
    rule, hint = "gpt_tiny.yaml: must be a new file, found one there", "--force replaces it, --out names another file"
    assert cstool("config", "pull", "gpt_tiny").refusal == error(rule, hint)
    assert Path("gpt_tiny.yaml").read_text() == "mine\n"
    assert cstool("config", "pull", "gpt_tiny", "--force").code == 0
    assert load_params("gpt_tiny.yaml").model.name == "gpt2"


REFUSED = rows("""\
config pull gpt-tiny.yaml => gpt-tiny.yaml: must be the name of a stock params file\nhint: did you mean gpt_tiny?
model describe nothing => nothing: must be the name of a stock params file\nhint: `cstool model list` lists them
config pull gpt_tiny --set trainer.init.model.hiden_size=3 =>
    --set trainer.init.model.hiden_size=3: is not a known key\nhint: did you mean hidden_size?
config pull gpt_tiny --out no/own.yaml =>
    no/own.yaml: cannot be written: No such file or directory\nhint: there is no folder no
""")


@pytest.mark.parametrize(("typed", "message"), REFUSED)
def test_what_cannot_be_is_one_error_and_nothing_is_written(cstool, tmp_path, typed, message):
    assert cstool(*typed.split()).refusal == error(message)
    assert list(tmp_path.iterdir()) == []


def test_models_are_listed_with_their_parameters_the_smallest_first(cstool):
    listed = cstool("model", "list", "--json").document["models"]
    assert sorted(model["name"] for model in listed) == list(stock_names())
    counts = [model["parameters"] for model in listed]
    assert counts == sorted(counts)
    tiny = load_params("gpt_tiny")
    assert build_graph(tiny.model, declared_form(tiny)).parameter_count == next(
        model["parameters"] for model in listed if model["name"] == "gpt_tiny"
    )
    lines = cstool("model", "list").stdout.splitlines()
    assert lines[0].split() == "name model parameters layers width heads tokens batch".split()
    assert lines[5].split() == ["gpt_tiny", "gpt2", "842,496", "4", "128", "4", "128", "24"]
    assert len(lines) == 1 + len(stock_names()) + 2


def test_a_model_is_described_with_what_to_type_next(cstool, golden):
    golden("cli/model_describe.txt", cstool("model", "describe", "gpt_tiny").said)
    document = cstool("model", "describe", "fc_mnist", "--json").document
    assert (document["width"], document["heads"], document["parameters"]) == ([256, 128], None, 235_146)
