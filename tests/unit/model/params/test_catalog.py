"""Stock params files: there wherever the program is, by name."""

import configparser
from pathlib import Path

import pytest
import yaml

import cstool
from cstool.foundation.errors import ParamsError
from cstool.model.params import load_params, stock_description, stock_names, stock_text
from tests.unit.model.params.conftest import each_message

PROJECT = Path(__file__).parents[4]
NAMES = sorted(path.stem for path in (PROJECT / "params").glob("*.yaml"))


def test_they_are_the_files_in_params_and_part_of_what_is_installed():
    assert list(stock_names()) == NAMES
    for name in NAMES:
        assert stock_text(name) == (PROJECT / "params" / f"{name}.yaml").read_text(encoding="utf-8")
        assert len(stock_description(name)) > 20
    assert stock_description("gpt2_small").startswith("GPT-2 small, 124 million parameters.")
    config = configparser.ConfigParser()
    config.read(PROJECT / "setup.cfg")
    package = Path(cstool.__file__).parent
    patterns = config["options.package_data"]["cstool"].split()
    packed = {path.name for pattern in patterns for path in package.glob(pattern)}
    assert {f"{name}.yaml" for name in NAMES} <= packed


@pytest.mark.parametrize("name", NAMES)
def test_by_name_a_file_is_as_if_it_lay_in_params_and_survives_being_resolved(name, tmp_path, monkeypatch):
    (tmp_path / "params").mkdir()
    (tmp_path / "params" / f"{name}.yaml").write_text(stock_text(name))
    monkeypatch.chdir(tmp_path)
    named, filed = load_params(name), load_params(f"params/{name}.yaml")
    assert named.resolved() == filed.resolved()
    assert named.train_dataloader is not None
    assert named.train_dataloader.folders[0].path.is_relative_to(tmp_path / "datasets")
    assert (named.model_dir, named.notes) == (tmp_path / "checkpoints" / name, ())
    (tmp_path / "again.yaml").write_text(yaml.safe_dump(named.resolved()))
    again = load_params(tmp_path / "again.yaml")
    assert (again, again.resolved()) == (named, named.resolved())


def test_a_stock_file_looks_for_data_in_the_working_directory_and_a_file_of_its_name_comes_first(tmp_path, monkeypatch):
    """Nobody means those of the folder above, from where ../datasets of the file would lead there."""
    monkeypatch.chdir(tmp_path)
    Path("gpt_tiny").write_text(stock_text("gpt_tiny").replace("max_steps: 600", "max_steps: 7"))
    assert load_params("gpt_tiny").loop.max_steps == 7
    (tmp_path / "datasets" / "text" / "train").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    [loader] = load_params("gpt_tiny").dataloaders("train")
    assert [path for folder in loader.folders for path in folder.tried] == [tmp_path / "work/datasets/text/train"]


def test_a_dict_is_no_file():
    message = "params: must be a params file, or the name of a stock one, got dict"
    with pytest.raises(ParamsError) as caught:
        load_params({"trainer": {}})
    hint = "overrides={KEY: VALUE} changes keys of a file; yaml.safe_dump makes a file of a dict"
    assert (str(caught.value), caught.value.exit_code) == (f"{message}\nhint: {hint}", 2)


@each_message("""\
gpt_tinyy => did you mean gpt_tiny?
params/gpt_tiny.yaml => gpt_tiny alone is the stock file; `cstool config pull gpt_tiny` writes a copy
gpt_tiny.yaml => gpt_tiny alone is the stock file; `cstool config pull gpt_tiny` writes a copy
elsewhere/own.yaml => there is no folder elsewhere either
""")
def test_a_file_that_is_not_there_leads_to_the_stock_file(folder, written, message):
    with pytest.raises(ParamsError) as caught:
        load_params(written)
    assert str(caught.value) == f"{written}: there is no such file\nhint: {message}"


def test_mistakes_name_the_file(folder):
    with pytest.raises(ParamsError) as caught:
        load_params("gpt_tiny", overrides={"trainer.init.model.num_heads": 3})
    assert str(caught.value).startswith("gpt_tiny.yaml:10: ")
