"""The page about inference shows what is printed, up to numbers and to the words of the model."""

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.pages import without_numbers
from tests.end_to_end.refusals import Outcome

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "infer.md").read_text(encoding="utf-8")
ENDINGS = r"(length|stop|end_of_text|context)"


def shape(value: Any) -> Any:
    """Return the keys and types of a document, with one entry of each list."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    return [shape(value[0])] if isinstance(value, list) else type(value).__name__


@pytest.fixture
def _trained(cstool, tmp_path, monkeypatch):
    """A folder in which the model of the page has had a few steps."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(PROJECT / "params", "params")
    (tmp_path / "source.txt").write_text("def f(x):\n    return x\n\n\n" * 300)
    data = "source.txt", "--output", "datasets/text", "--sequence_length", "128"
    assert cstool("data", "prepare", "text", *data).code == 0
    steps = "--max_steps", "3", "--set", "trainer.fit.train_dataloader.batch_size=4", "trainer.init.checkpoint.steps=3"
    assert cstool("run", "--params", "params/llama_tiny.yaml", *steps).code == 0


@pytest.mark.usefixtures("_trained")
def test_the_page_shows_what_it_prints(cstool):
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert [kind for kind, _ in blocks] == ["console", "", "", "console", "", "console", "json", "console", ""]
    one, text, log, several, texts, script, document, classes, table = (block for _, block in blocks)

    def run(line: str) -> Outcome:
        outcome = cstool(*shlex.split(line.removeprefix("$ cstool ")))
        assert outcome.code == 0, outcome.stderr
        return outcome

    outcome = run(one)
    assert text.startswith("def ")
    assert outcome.stdout.startswith("def ")
    said = [re.sub(ENDINGS, "ENDING", line.partition("INFO:   ")[2]) for line in outcome.stderr.splitlines()]
    assert [without_numbers(line) for line in said[-3:]] == [
        without_numbers(re.sub(ENDINGS, "ENDING", line)) for line in log.splitlines()
    ]
    heads = [line for line in run(several).stdout.splitlines() if line.startswith("---")]
    assert heads == [line for line in texts.splitlines() if line.startswith("---")]
    assert shape(json.loads(run(script).stdout)) == shape(json.loads(document))
    *_, predicted = [run(line) for line in classes.splitlines()]
    path = re.search(r"TMP/(\S+): [\d,]+ predictions", predicted.stderr)
    assert path is not None
    lines = Path(path[1]).read_text().splitlines()
    shown = table.splitlines()
    assert (lines[0], shown[-1]) == (shown[0], "...")
    assert [without_numbers(line) for line in lines[1 : len(shown) - 1]] == [without_numbers(x) for x in shown[1:-1]]
