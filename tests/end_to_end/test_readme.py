"""The commands of the README, the tour and docs/plan/compile.md, run as they are written, print what it says."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
import yaml

from cstool.model.graphs import build_graph
from cstool.model.params import load_params
from cstool.model.sparsity import assign_groups
from tests.end_to_end.worked import PROJECT, save_checkpoints, write_params

README = (PROJECT / "README.md").read_text(encoding="utf-8")
SPARSITY_PAGE = (PROJECT / "docs" / "model" / "sparsity.md").read_text(encoding="utf-8")
TOUR = (PROJECT / "docs" / "tour.md").read_text(encoding="utf-8")
CONSOLES = re.findall(r"```console\n(.*?)```", TOUR, re.DOTALL)


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def after_the_demo(tmp_path_factory) -> Path:
    """A folder as `make demo` leaves it: the text, and the checkpoint of its last step (here with random weights)."""
    folder = tmp_path_factory.mktemp("project")
    write_params(folder)
    prepare = re.search(r"^cstool data prepare text .*$", (PROJECT / "examples" / "demo.sh").read_text(), re.MULTILINE)
    assert prepare is not None
    assert run(prepare[0], folder).returncode == 0
    file = folder / "params" / "gpt_tiny.yaml"
    last = load_params(file).loop.max_steps
    assert last is not None
    save_checkpoints(file, folder / "checkpoints" / "gpt_tiny", (last,))
    return folder


def outputs(console: str, folder: Path) -> list[str]:
    """Run the commands of a block, which must work, and return what each prints."""
    found = []
    for line in console.splitlines():
        done = run(line.removeprefix("$ "), folder)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        found.append(done.stdout)
    return found


@pytest.mark.lab
def test_the_commands_after_the_demo_about_a_file_and_about_the_wafer_work(after_the_demo):
    for console, count in ((0, 6), (2, 4), (4, 4)):
        assert len(outputs(CONSOLES[console], after_the_demo)) == count
    for picture in ("gpt2_small.svg", "gpt3_175b.png"):
        assert (after_the_demo / picture).stat().st_size > 10_000


@pytest.mark.lab
def test_the_model_of_the_demo_writes_at_its_end(after_the_demo):
    last = (PROJECT / "examples" / "demo.sh").read_text().splitlines()[-1]
    done = run(last, after_the_demo)
    assert (done.returncode, done.stdout[:4], done.stderr) == (0, "def ", "")


@pytest.mark.lab
def test_the_sparse_run_works_and_is_that_of_the_page_about_sparsity(after_the_demo):
    (printed,) = outputs(CONSOLES[3], after_the_demo)
    assert "Sparsity: 24 weights, and which kernels computed with them:" in printed
    assert CONSOLES[3] in SPARSITY_PAGE


def test_the_sections_on_the_page_about_sparsity_are_right():
    for section in re.findall(r"```yaml\n(.*?)```", SPARSITY_PAGE, re.DOTALL):
        written = yaml.safe_dump(yaml.safe_load(section)["sparsity"], default_flow_style=True, width=1000)
        params = load_params(PROJECT / "params" / "gpt_tiny.yaml", overrides=[f"trainer.init.sparsity={written}"])
        assert assign_groups(params.sparsity, build_graph(params.model, 128), params.sparsity_place)


@pytest.mark.lab
def test_the_commands_about_many_runs_work(after_the_demo, monkeypatch):
    monkeypatch.setenv("CSTOOL_APPLIANCE", str(after_the_demo / "appliance"))
    (console,) = (console for console in CONSOLES if "cstool job" in console)
    try:
        job = outputs(console, after_the_demo)[1].strip()
        [log] = outputs(f"cstool job wait {job} >/dev/null && cstool job logs {job}", after_the_demo)
        assert "Step=620, Loss=" in log
    finally:
        run("cstool appliance stop --cancel_jobs", after_the_demo)


def test_the_mistakes_that_it_shows_are_told_in_these_words(tmp_path):
    command, *expected = CONSOLES[1].splitlines()
    write_params(tmp_path)
    done = run(command.removeprefix("$ "), tmp_path)
    assert (done.returncode, done.stdout, done.stderr.splitlines()) == (2, "", expected)


def test_its_two_commands_are_targets_of_the_makefile_and_its_output_of_the_demo_is_of_these_params():
    makefile = (PROJECT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}: install", makefile, re.MULTILINE), target
    last = load_params(PROJECT / "params" / "gpt_tiny.yaml").loop.max_steps
    assert f"held-out loss of the GPT after step {last}:" in README


@pytest.mark.lab
def test_the_page_of_the_compiler_shows_what_it_prints(tmp_path):
    write_params(tmp_path)
    for more in ("--out a.json", "--num_csx 5 --out b.json"):
        assert run(f"cstool compile --params params/fc_mnist.yaml {more}", tmp_path).returncode == 0
    page = (PROJECT / "docs" / "plan" / "compile.md").read_text(encoding="utf-8")
    consoles = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    assert len(consoles) == 4
    for console in consoles:
        commands = re.findall(r"^\$ (.*)$", console, re.MULTILINE)
        done = [(command, run(command, tmp_path)) for command in commands]
        assert "".join(f"$ {command}\n{found.stdout}{found.stderr}" for command, found in done) == console


@pytest.mark.lab
def test_its_snippet_trains_on_from_the_demo(after_the_demo, tmp_path):
    (snippet,) = re.findall(r"```python\n(.*?)```", TOUR, re.DOTALL)
    assert "num_steps=50" in snippet
    short = snippet.replace("num_steps=50", "num_steps=2").replace("max_tokens=60", "max_tokens=4")
    shutil.copytree(after_the_demo, tmp_path / "project")
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as printed:
        patch.chdir(tmp_path / "project")
        exec(compile(f"import cstool\n{short}", "tour.md", "exec"), {})  # noqa: S102
    assert re.match(r"loss \d\.\d\d to \d\.\d\d\ndef ", printed.getvalue())
