"""`cstool compile`: what it writes, prints and refuses."""

import errno
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cstool.model.ir import artifact_text, read_artifact
from tests.end_to_end.refusals import error, rows

TRAINER: dict[str, Any] = yaml.safe_load("""
init:
  model: {name: gpt2, vocab_size: 256, hidden_size: 64, num_heads: 4, num_hidden_layers: 2, filter_size: 256,
          max_position_embeddings: 128}
  optimizer: {AdamW: {learning_rate: 0.1}}
  loop: {max_steps: 5}
  model_dir: out
fit:
  train_dataloader: {data_processor: GptHDF5MapDataProcessor, data_dir: ., batch_size: 48}
""")


@pytest.fixture(autouse=True)
def _in_a_folder(folder: Path) -> None:
    write(TRAINER)


def write(*trainers: Any) -> None:
    several = [{"trainer": trainer} for trainer in trainers]
    Path("x.yaml").write_text(yaml.safe_dump({"trainer": several if len(trainers) > 1 else trainers[0]}))


@pytest.mark.parametrize("mode", ["pipelined", "weight_streaming"])
def test_the_report_and_the_document(cstool, golden, mode):
    asked = ("compile", "--params", "x.yaml", "--execution_mode", mode, "--out", "a.json")
    golden(f"cli/compile_{mode}.txt", cstool(*asked).said)
    document = cstool(*asked, "--json").document
    artifact = read_artifact(Path("a.json"))
    assert (document["mode"], document["modelled"]["step_s"]) == (mode, artifact.step_s)
    assert document["modelled"]["samples_per_s"] == 48 / artifact.step_s
    assert sum(entry["bytes"] for entry in document["sram"]["account"]) == artifact.sram_used_bytes
    assert 0 < document["modelled"]["utilization"] < 1
    if mode == "pipelined":
        assert artifact.pipelined is not None
        assert [stage["name"] for stage in document["stages"]] == [stage.name for stage in artifact.pipelined.stages]
        assert document["kernels"] is None
    for kernel in document["stages"] or [kernel for kernels in document["kernels"] for kernel in kernels]:
        phases = [kernel["cycles"][name] for name in ("forward", "delta", "gradient")]
        for phase in phases:
            limits = {name: phase[name] for name in ("compute", "link", "ingress", "egress")}
            assert phase[phase["bound"]] == max(limits.values())
            assert phase["cycles"] == max(limits.values()) + phase["latency"]
        again = kernel["cycles"]["recompute_cycles"]
        assert kernel["cycles_total"] == sum(phase["cycles"] for phase in phases) + again


def test_the_artifact_is_kept_where_a_run_looks_for_it_or_in_a_folder_that_is_named(cstool):
    first = cstool("compile", "--params", "x.yaml", "--json").document
    (path,) = Path("out/cached_compile").iterdir()
    assert first["artifact"] == str(path.absolute())
    ran = cstool("run", "--params", "x.yaml", "--compile_only")
    assert f'Found existing cached compile with hash: "{path.stem}"' in ran.stdout
    assert list(Path("out/cached_compile").iterdir()) == [path]
    document = cstool("compile", "-p", "x.yaml", "-c", "kept", "--num_csx", "2", "--json").document
    (path,) = Path("kept").iterdir()
    assert (document["artifact"], document["num_csx"]) == (str(path.absolute()), 2)


def test_the_line_that_it_prints_can_be_pasted(cstool):
    report = cstool("compile", "-p", "x.yaml", "--execution_mode", "weight_streaming", "--out", "a.json").stdout
    line = next(line for line in report.splitlines() if line.startswith("micro-batch"))
    trainer = {**TRAINER, "init": {**TRAINER["init"], "callbacks": yaml.safe_load(line.partition("in the file: ")[2])}}
    Path("pasted.yaml").write_text(yaml.safe_dump({"trainer": trainer}))
    cstool("compile", "-p", "pasted.yaml", "--execution_mode", "weight_streaming", "--out", "b.json")
    old, new = (read_artifact(Path(name)) for name in ("a.json", "b.json"))
    assert new.inputs["micro_batch_size"] == str(old.micro_batch_size)
    assert new.streaming == old.streaming


def test_validate_only_goes_as_far_as_kernels(cstool):
    asked = ("compile", "-p", "x.yaml", "--validate_only")
    assert cstool(*asked).said == "gpt2: 28 ops in 12 kernels, each of which there is\n"
    assert not Path("out").exists()
    assert cstool(*asked, "--json").document == {"model": "gpt2", "ops": 28, "kernels": 12}


def test_the_program_after_a_pass(cstool, golden):
    outcome = cstool("compile", "-p", "x.yaml", "--print_after", "match_kernels", "--json")
    golden("cli/compile_print_after.txt", outcome.stderr)
    assert json.loads(outcome.stdout)["model"] == "gpt2"
    every = cstool("compile", "-p", "x.yaml", "--print_after", "all").stderr
    assert re.findall(r"^-- after (\w+)", every, re.MULTILINE) == PASSES.split(", ")


def test_several_trainers(cstool):
    write(TRAINER, TRAINER)
    report = cstool("compile", "-p", "x.yaml").stdout
    assert re.findall(r"^Trainer.*", report, re.MULTILINE) == [f"Trainer {n + 1} of 2 (trainer.{n})" for n in (0, 1)]
    assert len(cstool("compile", "-p", "x.yaml", "--json").document["trainers"]) == 2


PIPELINED_NOTE = "sparsity gains nothing here: pipelined keeps zeros on the wafer and computes with them"
DENSE_NOTE = "sparsity is modelled as dense: dropconnect leaves weights out for a step at a time"
NOTES = [("static", "pipelined", [PIPELINED_NOTE]), ("static", "weight_streaming", [])]


@pytest.mark.parametrize(("algorithm", "mode", "notes"), [*NOTES, ("dropconnect", "weight_streaming", [DENSE_NOTE])])
def test_what_sparsity_is_for_the_modelled_wafer_is_said(cstool, algorithm, mode, notes):
    write({**TRAINER, "init": {**TRAINER["init"], "sparsity": {"algorithm": algorithm, "sparsity": 0.75}}})
    asked = ("compile", "-p", "x.yaml", "--execution_mode", mode, "--out", "a.json")
    assert re.findall(r"^note: (.*)", cstool(*asked).stdout, re.MULTILINE) == notes
    assert cstool(*asked, "--json").document["notes"] == notes
    ran = cstool("run", "-p", "x.yaml", "--execution_mode", mode, "--compile_only").stdout
    assert re.findall(r"Modelled: (.*)\.$", ran, re.MULTILINE) == notes


def test_a_picture_is_there_whole_or_as_it_was(cstool, monkeypatch):
    Path("a.png").write_bytes(b"before")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    cstool("compile", "-p", "x.yaml", "--out", "b.json")
    asked = ("compile", "show", "b.json", "--plot", "a.png")
    with monkeypatch.context() as patch:
        patch.setattr("cstool.foundation.atomic_file.os.fsync", full)
        outcome = cstool(*asked)
    assert (outcome.code, outcome.stderr) == (2, "error: a.png: cannot be written: No space left on device\n")
    assert Path("a.png").read_bytes() == b"before"
    assert sorted(path.name for path in Path().iterdir()) == ["a.png", "b.json", "x.yaml"]
    assert cstool(*asked).code == 0
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")


def test_an_artifact_is_shown_as_it_was_when_it_was_compiled(cstool):
    compiled = cstool("compile", "-p", "x.yaml", "--out", "a.json", "--plot", "a.svg").stdout
    assert cstool("compile", "show", "a.json", "--plot", "b.svg") == (0, compiled, "")
    one, other = (Path(f"{name}.svg").read_bytes() for name in "ab")
    assert one == other
    assert one.startswith(b"<?xml")
    assert cstool("compile", "show", "a.json", "--json").document["artifact"] == "a.json"


def test_differences(cstool):
    cstool("compile", "-p", "x.yaml", "--out", "a.json")
    cstool("compile", "-p", "x.yaml", "--out", "b.json", "--system", "cs3")
    assert cstool("compile", "diff", "a.json", "a.json") == (0, "no difference\n", "")
    assert cstool("compile", "diff", "a.json", "a.json", "--json").document == {"equal": True, "differences": []}
    outcome = cstool("compile", "diff", "a.json", "b.json")
    assert (outcome.code, outcome.stderr) == (1, "")
    assert "\nstep, modelled: " in f"\n{outcome.stdout}"
    found = cstool("compile", "diff", "a.json", "b.json", "--json")
    assert found.code == 1
    assert len(json.loads(found.stdout)["differences"]) >= 2


PASSES = (
    "infer_shapes, fuse_kernels, match_kernels, add_backward, plan_memory, plan_streaming, place_stages, route_edges, "
    "choose_mode"
)
REFUSED = rows("""\
--num_csx 2 => --params is missing\nhint: cstool compile --params FILE
-p y.yaml => y.yaml: there is no such file\nhint: did you mean x.yaml?
-p x.yaml --system cs9 => cs9: is not a known system
    hint: did you mean cs3? known are cs1, cs2, cs3, and paths of YAML files
-p x.yaml --num_csx 5 => x.yaml: num_csx must divide batch_size (48), got 5\nhint: 4 and 6 are the nearest
-p x.yaml --micro_batch_size 50 => x.yaml: micro_batch_size must be at most the samples of a system (48), got 50
-p x.yaml --plot a.pdf => --plot: must end in .svg or .png, got a.pdf
-p x.yaml --plot none/a.png => none/a.png: cannot be written: No such file or directory
-p x.yaml --out none/a.json => none/a.json: must be a file that can be written, got: No such file or directory
-p x.yaml -c x.yaml => compile_dir: must be a folder that can be written, got FOLDER/x.yaml: File exists
    hint: name another folder with --compile_dir
-p x.yaml --print_after fuse_kernel => --print_after: must be all or one of PASSES, got 'fuse_kernel'
    hint: did you mean fuse_kernels?
-p x.yaml --execution_mode pipeline =>
    --execution_mode: must be one of auto, pipelined, weight_streaming, got 'pipeline'
    hint: did you mean pipelined?
diff x.yaml x.yaml => x.yaml: must be a JSON document, got: Expecting value (line 1)
    hint: it is cut short or damaged: compile again
show none.json => none.json: must be an artifact that can be read, got: No such file or directory
    hint: `cstool compile` writes artifacts
""")


@pytest.mark.parametrize(("typed", "message"), REFUSED)
def test_bad_input_is_one_error_and_nothing_is_written(cstool, folder, typed, message):
    before = sorted(Path().rglob("*.*"))
    outcome = cstool("compile", *typed.split())
    assert outcome.refusal.replace(str(folder), "FOLDER") == error(message.replace("PASSES", PASSES))
    assert [path for path in sorted(Path().rglob("*.*")) if "cached_compile" not in path.parts] == before


def test_an_artifact_that_was_edited_is_refused(cstool):
    cstool("compile", "-p", "x.yaml", "--out", "a.json")
    artifact = read_artifact(Path("a.json"))
    text = artifact_text(artifact)
    Path("a.json").write_text(text.replace('"batch_size": 48', '"batch_size": 96'))
    outcome = cstool("compile", "show", "a.json")
    assert outcome.code == 2
    assert outcome.stderr.startswith("error: a.json: must be as it was written (digest ")
    Path("a.json").write_text(text[: len(text) // 2])
    assert cstool("run", "-p", "x.yaml", "--artifact", "a.json").code == 2
