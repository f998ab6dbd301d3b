"""The notebook of the first hour runs, and computes what it says."""

import json
import re
import shutil
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib.font_manager  # which looks for fonts, once for all processes
import nbformat
import pytest
from nbclient import NotebookClient

PROJECT = Path(__file__).parents[2]
REPORT = """\
import json

print(json.dumps({
    "dense": dense.losses, "sparse": sparse.losses, "held_out": held_out["loss"], "text": drawn.texts[0],
    "streamed": [dense.streamed_bytes_per_step, sparse.streamed_bytes_per_step], "same": again.texts == drawn.texts,
    "days": [row.estimate.days for row in rows], "tiny_s": tiny.step_s, "samples": made.train.samples,
}))
"""


@pytest.mark.takes("trains two models in a kernel of Jupyter")
def test_it_computes_what_it_says(tmp_path, monkeypatch):
    for name in ("params", "examples"):
        shutil.copytree(PROJECT / name, tmp_path / name)
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    # Paths of Jupyter are those of the platform; without this it warns that they will be.
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    # Else it says what it does about fonts, where nobody drew before or HOME cannot be written.
    monkeypatch.setenv("MPLCONFIGDIR", matplotlib.get_cachedir())
    notebook = nbformat.read(tmp_path / "examples" / "first_hour.ipynb", as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(REPORT))
    where = {"metadata": {"path": tmp_path / "examples"}}
    NotebookClient(notebook, kernel_name="python3", timeout=600, startup_timeout=300, resources=where).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    check_report(json.loads(cells[-1].outputs[0].text))
    training = [cell for cell in cells if "cstool.train(" in cell.source and "CstoolError" not in cell.source]
    assert len(training) == 2
    for cell in training:
        check_progress(cell)
    streams = [output for cell in cells for output in cell.outputs if output.output_type == "stream"]
    assert {output.name for output in streams} == {"stdout"}
    assert not any("\x1b" in output.text or "\r" in output.text for output in streams)


def check_report(found: dict[str, Any]) -> None:
    assert found["samples"] > 1000
    for kind in ("dense", "sparse"):
        assert len(found[kind]) == 60
        assert found[kind][-1] < found[kind][0] - 2
    assert found["dense"] != found["sparse"]
    # A model that guesses every byte alike is at ln 256, 5.5 nats.
    # The batches are small: the loss of one may be far off, as the text is another in each version of Python.
    assert abs(found["held_out"] - fmean(found["dense"][-10:])) < 0.5
    assert found["text"].startswith("    def ")
    assert found["same"] is True
    dense, sparse = found["streamed"]
    assert sparse < 0.3 * dense
    one, four, sixteen = found["days"]
    assert one > 3.5 * four > 12 * sixteen
    assert 0 < found["tiny_s"] < 0.01


def check_progress(cell: Any) -> None:
    """Check that one curve was shown, which ends with the last step."""
    [shown] = [output.data for output in cell.outputs if output.output_type == "display_data"]
    assert shown["text/plain"].startswith("Training 60/60, loss ")
    [points] = re.findall(r'<polyline points="([^"]*)"', shown["text/html"])
    assert len(points.split()) == 60
    assert "<progress" not in shown["text/html"]


def test_what_lies_in_the_project_is_of_a_run_from_top_to_bottom():
    notebook = nbformat.read(PROJECT / "examples" / "first_hour.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert str(Path.home()) not in nbformat.writes(notebook)
