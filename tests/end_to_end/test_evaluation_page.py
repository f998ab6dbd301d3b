"""The page about evaluation shows what runs print."""

import re
import shlex
import shutil
from pathlib import Path

from tests.end_to_end.pages import without_numbers

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "evaluation.md").read_text(encoding="utf-8")


def test_the_page_shows_what_it_prints(cstool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(PROJECT / "params", "params")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert [kind for kind, _ in blocks] == ["yaml", "console", "", "console", "", "", "console"]
    params, train, metrics, evaluate, table, end, load = (text for _, text in blocks)
    Path("two_sets.yaml").write_text(params)

    def printed(console: str) -> list[str]:
        """Run the commands of a block, and return the log lines of the last, without what is another everywhere."""
        outcomes = [cstool(*shlex.split(line.removeprefix("$ cstool "))) for line in console.splitlines()]
        assert [(outcome.code, outcome.stderr) for outcome in outcomes] == [(0, "")] * len(outcomes)
        return [without_numbers(line.partition("INFO:   ")[2]) for line in outcomes[-1].stdout.splitlines()]

    def shown(block: str) -> list[str]:
        return [without_numbers(line) for line in block.splitlines()]

    log = printed(train)
    for line in (*shown(metrics), *shown(end)):
        assert line in log, line
    assert "Training completed successfully!" in log
    names = sorted(path.name for path in Path("checkpoints/two_sets").glob("*.mdl"))
    assert {"model_checkpoint_8.mdl", "model_checkpoint_16.mdl"} <= set(names)
    assert len([name for name in names if name.startswith("checkpoint")]) == 3
    assert printed(evaluate)[-7:-4] == shown(table)
    printed(load)
