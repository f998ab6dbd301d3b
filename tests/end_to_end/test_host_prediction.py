"""A run ends with what was predicted for this host beside what was measured."""

import json
import re

from cstool.run.report import host_rates
from tests.end_to_end.runs import gpt_params
from tests.hosts import round_rates

LINE = r"Time per step on this host, predicted / measured: \S+ / \S+ s \([+-]\d+%\); forward "
NONE = "Nothing was predicted for this host: `cstool estimate --system host` measures what it can do."


def test_the_log_and_the_document_say_it(cstool, data, tmp_path, monkeypatch):
    monkeypatch.setattr(host_rates, "rates_file", lambda: tmp_path / "host.yaml")
    host_rates.save_rates(round_rates())
    file = gpt_params(tmp_path / "run", data)
    found = cstool("run", "-p", file, "--json")
    assert re.search(LINE, found.stderr)
    assert json.loads(found.stdout)["predicted"]["step"]["predicted"] > 0
    (tmp_path / "host.yaml").unlink()
    assert NONE in cstool("run", "-p", file, "--max_steps", "8").stdout
