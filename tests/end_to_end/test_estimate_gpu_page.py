"""docs/estimate_gpu.md shows what the commands print."""

import shlex
import shutil
from pathlib import Path

import pytest

from cstool.cli.estimate_gpu import print_gpu_validation
from cstool.perf.gpu import load_gpu
from cstool.verbs.estimate_gpu import validate_gpus
from tests.end_to_end.pages import PROJECT, blocks, plain_lines


@pytest.fixture(autouse=True)
def _in_a_folder_with_params(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(PROJECT / "params", "params")


def test_the_page_shows_what_is_printed(cstool, capsys):
    console, validation, own = blocks("estimate_gpu", "console", "text", "yaml")
    command, _, shown = console.partition("\n...\n")
    printed = cstool(*shlex.split(command.removeprefix("$ cstool "))).stdout
    assert plain_lines(printed[printed.index("the same job on GPUs") :]) == plain_lines(shown)
    print_gpu_validation(validate_gpus())
    assert plain_lines(capsys.readouterr().out.strip()) == plain_lines(validation)
    Path("own.yaml").write_text(own)
    assert load_gpu("own.yaml").memory_bytes == 40e9
