"""Pages of the documentation show what the commands print and leave behind, and name what there is."""

import json
import os
import re
import shlex
import shutil
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from cstool.convert.hf_families import HF_FAMILIES
from cstool.model.graphs import build_graph
from cstool.model.params import load_params
from cstool.training.data import preprocess_file
from cstool.training.host import rates as host_rates
from cstool.training.kernels import onednn_float32
from cstool.training.store import CheckpointWriter
from tests.end_to_end.pages import (
    PROJECT,
    blocks,
    check_console,
    commands_of,
    consoles,
    page,
    plain_lines,
    run_console,
    run_python,
    typed,
)
from tests.end_to_end.worked import write_data
from tests.event_files import scalars_of
from tests.hosts import round_rates
from tests.reference.peft_folders import adapters, write_peft
from tests.reference.vendor_files import Object, write_vendor

pytestmark = pytest.mark.usefixtures("with_params")


@pytest.mark.lab
def test_checkpoint(cstool):
    Path("checkpoints/kept").mkdir(parents=True)
    runs, *others = consoles("checkpoint")
    assert len(run_console(cstool, "".join(re.findall(r"^\$ cstool .*\n", runs, re.MULTILINE)))) == 4
    verbs = [command.split()[1] for console in others for command in check_console(cstool, console)]
    assert verbs == ["list", "info", "verify", "diff", "diff", "copy", "prune", "delete"]


@pytest.mark.lab
def test_finetuning(cstool):
    runs, files = consoles("finetuning")
    assert len(run_console(cstool, runs)) == 3
    assert [command.split()[1] for command in check_console(cstool, files)] == ["list", "merge"]
    callback = blocks("finetuning", "console", "sh", "text", "yaml", "console", "python", "yaml", "sh")[3]
    keys = yaml.safe_load(callback)["trainer"]["init"]["callbacks"]
    params = load_params("gpt_tiny", overrides={"trainer.init.callbacks": keys})
    assert [(each.rank, each.scale, each.layers) for each in params.tuning.adapters] == [(8, 2.0, ("*self_attn.*",))]


@pytest.mark.lab
@pytest.mark.takes("a model that learns text, then instructions")
def test_a_model_learns_to_say_what_functions_do_as_the_page_says(cstool):
    """The losses are of a text that is another with each version of Python."""
    code, params, runs = blocks("finetuning")[5:]
    assert cstool(*shlex.split(consoles("finetuning")[0].splitlines()[0])[2:]).code == 0
    run_python(code)
    Path("pairs.yaml").write_text(params)
    losses = []
    for line in runs.splitlines():
        outcome = cstool(*shlex.split(line)[1:])
        assert outcome.code == 0, outcome.stderr
        losses += map(float, re.findall(r"Avg Eval Loss: ([\d.]+)", outcome.stdout))
    before, after = losses
    assert after < before - 0.5
    answers = {
        name: [json.loads(line) for line in Path(f"{name}.jsonl").read_text().splitlines()]
        for name in ("before", "after")
    }
    stops = {name: sum(each["finish_reason"] == "end_of_text" for each in found) for name, found in answers.items()}
    assert len(answers["after"]) == 20
    assert stops["before"] <= 2
    assert stops["after"] >= 18


# Params files


def test_config(cstool):
    shutil.copy(PROJECT / "tests" / "interop" / "gpt2_small_legacy.yaml", "params_gpt2.yaml")
    verbs = []
    for console in consoles("config"):
        command, _, printed = console.removeprefix("$ cstool ").partition("\n")
        verbs.append(command.split()[1])
        found = cstool(*shlex.split(command)).said
        begin, dots, _ = printed.partition("...\n")
        assert found.startswith(begin) if dots or not printed else found == printed
    assert verbs == ["pull", "validate", "show", "stats", "convert_legacy", "keys"]


@pytest.mark.parametrize(("mark", "end"), [(b"", b"\r"), (b"\xef\xbb\xbf", b"\r\n"), (b"\xef\xbb\xbf", b"\n")])
def test_line_ends_and_a_byte_order_mark_change_no_line(cstool, end, mark):
    content = Path("params/gpt_tiny.yaml").read_bytes()
    Path("x.yaml").write_bytes(mark + content.replace(b"\n", end))
    assert cstool("config", "validate", "x.yaml").code == 0
    Path("x.yaml").write_bytes(mark + content.replace(b"hidden_size: 128", b"hidden_size: 130").replace(b"\n", end))
    line = content[: content.index(b"hidden_size")].count(b"\n") + 1
    message = f"error: x.yaml:{line}: trainer.init.model.hidden_size must be a multiple of num_heads (4), got 130\n"
    assert cstool("config", "validate", "x.yaml") == (2, "", f"{message}hint: 128 and 132 are the nearest\n")


def test_a_system_file_may_have_the_line_ends_of_windows(cstool):
    content = (PROJECT / "cstool" / "model" / "system" / "systems" / "cs2.yaml").read_bytes()
    Path("cs2.yaml").write_bytes(b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n"))
    assert cstool("system", "show", "cs2.yaml") == cstool("system", "show", "cs2")


def test_the_index_names_every_page_once():
    named = re.findall(r"\]\(([\w/]+\.md)\)", page("README").partition("# Pages")[2])
    pages = {path.relative_to(PROJECT / "docs").as_posix() for path in (PROJECT / "docs").rglob("*.md")}
    assert sorted(named) == sorted(pages - {"README.md", "python_reference.md"})


def anchors(text: str) -> set[str]:
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_links_of_all_pages_lead_somewhere():
    dead = []
    for path in (PROJECT / "docs").rglob("*.md"):
        text = re.sub(r"^```.*?^```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for target, anchor in re.findall(r"\]\(([\w/.-]*)(?:#([\w-]*))?\)", text):
            found = path.parent / target if target else path
            if not found.exists() or (anchor and anchor not in anchors(found.read_text(encoding="utf-8"))):
                dead.append(f"{path.name}: {target}#{anchor}")
    assert not dead


# Precision


def test_precision(cstool):
    """Which providers a machine has differs; that a run refuses another precision is tested with runs."""
    kinds = ("yaml", "console", "text", "yaml", "text", "text")
    narrow, console, refusal, scaled, stopped, _ = blocks("precision", *kinds)
    changed, scaling = (
        load_params(
            Path("params/gpt_tiny.yaml"),
            overrides=[f"trainer.init.precision={json.dumps(yaml.safe_load(written)['trainer']['init']['precision'])}"],
        )
        for written in (narrow, scaled)
    )
    assert changed.host_precision == "bfloat16"
    assert scaling.precision.loss_scaling == (2.0**15, 2.0**-14, 2.0**15, 2000)
    assert stopped.startswith("error: ")
    shown = cstool("system", "show", "host").stdout.splitlines()
    command, _, _, header, *rows, _, speed, choice = console.splitlines()
    assert command == "$ cstool system show host"
    # More follows on a machine where runs have begun.
    end = shown.index("", 3)
    assert (header.split(), speed, choice) == (shown[2].split(), *shown[end + 1 : end + 3])
    assert [row.split()[:2] for row in rows] == [row.split()[:2] for row in shown[3:end]]
    assert refusal.startswith("error: ")
    table = {
        cell.strip() for line in page("precision").splitlines() if line.startswith("|") for cell in line.split("|")
    }
    assert {"the residual", "both sides of an activation function"} <= table


# Conversions


def test_convert(cstool):
    params = load_params("params/gpt_tiny.yaml")
    rng = np.random.default_rng(0)
    shapes = {f"model.{name}": weight.shape for name, weight in build_graph(params.model, 128).weights.items()}
    weights = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    for folder in ("checkpoints/gpt_tiny", "vendor", "datasets/text"):
        Path(folder).mkdir(parents=True)
    with CheckpointWriter(Path("checkpoints/gpt_tiny/checkpoint_600.mdl")) as writer:
        for name, weight in weights.items():
            writer.add_tensor(name, weight.shape, "float32", [weight])
        writer.add_value("__metadata__", [{"version": "1", "model_name": "gpt2", "params": params.resolved()}])
    write_vendor(Path("vendor/checkpoint_1000.mdl"), {**weights, "global_step": 1000, "dataloader": Object()})
    part = {"samples": 1, "files": 1, "size_bytes": 1, "tokens": 1}
    prepared = {"digest": "", "files": {}, "parts": {"train": part, "val": part}, "sequence_length": 128}
    Path("datasets/text/prepared.json").write_text(json.dumps(prepared))
    matrices = {
        f"transformer.h.{n}.attn.c_attn.weight": np.ones((128, 384)) for n in range(params.model.num_hidden_layers)
    }
    write_peft(Path("gpt_lora"), adapters(matrices, ["c_attn"], is_transposed=True))
    assert len(consoles("convert")) == 4
    for console in consoles("convert"):
        printed = []
        for command in commands_of(console):
            outcome = cstool(*command.split())
            printed.append(f"$ cstool {command}\n{outcome.stdout}{outcome.stderr}")
        # Roundings are others on every machine.
        found, shown = (re.sub(r"(?<=differ by )\S+", "", text) for text in ("".join(printed), console))
        assert found == shown


def test_the_table_of_names_has_those_of_the_code():
    lines = page("convert").partition("| here, and the vendor's |")[2].partition("\n\n")[0].splitlines()[2:]
    table: dict[str, dict[str, str]] = {family: {} for family in HF_FAMILIES}
    for line in lines:
        (ours, _), *named = re.findall(r"`([^`]+)`(?: \(([^)]*)\))?", line)
        for theirs, families in named:
            for family in families.split(", "):
                table[family][ours] = theirs
    assert table == {name: dict(family.names) for name, family in HF_FAMILIES.items()}


def test_the_table_of_families_has_those_of_the_code():
    lines = page("convert").partition("| `model_type` |")[2].partition("\n\n")[0].splitlines()[2:]
    assert f"| `hf`: {len(lines)} families" in page("convert")
    assert [re.findall(r"`([^`]+)`", line)[:3] for line in lines] == [
        [family.model_type, family.class_name, family.fixed.get("name", family.called[0])]
        for family in HF_FAMILIES.values()
    ]
    prefixes = re.findall(r"`(\w+\.)` \(([^)]*)\)", page("convert").partition("## Names")[2].partition("\n\n| ")[0])
    known = {family: prefix for prefix, families in prefixes for family in families.split(", ")}
    assert {name: known.get(name, known["the others"]) for name in HF_FAMILIES} == {
        name: family.prefix for name, family in HF_FAMILIES.items()
    }


# Data


def test_data(cstool):
    shutil.copy(PROJECT / "LICENSE", "LICENSE")
    *fine, damaged, digits = consoles("data")
    shown = [command for console in fine for command in check_console(cstool, console)]
    os.truncate("datasets/license/val/data_00000.h5", 12_000)
    outcome = cstool("data", "check", "datasets/license")
    assert (outcome.code, f"$ cstool data check datasets/license\n{outcome.stdout}") == (1, damaged)
    shown += check_console(cstool, digits)
    verbs = [re.split(r" (?=\S*[/A-Z-])", command)[0] for command in shown]
    looked_at = ["data info", "data check"]
    of_text, of_masked_text = ["data prepare text"] * 2, ["data prepare mlm"] * 2
    expected = [*of_text, *of_masked_text, *looked_at, "data prepare span", *looked_at, *looked_at]
    assert verbs == [*expected, "data prepare digits", "data info"]


def test_instructions(cstool):
    kinds = ("python", "console", "yaml", "sh", "python", "yaml", "console")
    code, console, params, _, more_code, config, more = blocks("instructions", *kinds)
    run_python(f"{code}\n{more_code}")
    shown = [command.split()[1] for command in check_console(cstool, console)]
    assert shown == ["prepare", "info"]
    Path("capitals.yaml").write_text(params)
    assert cstool("config", "validate", "capitals.yaml").code == 0
    Path("preprocess.yaml").write_text(config)
    assert [command.split()[1] for command in check_console(cstool, more)] == ["prepare", "preprocess"]


def test_every_key_of_preprocessing_is_explained():
    def keys(section):
        yield from section.known_keys()
        for field in section.model_fields.values():
            found = re.findall(r"\w+Params", str(field.annotation))
            yield from (key for name in found for key in keys(getattr(preprocess_file, name)))

    written = page("instructions")
    sections = (preprocess_file.SetupParams, preprocess_file.ProcessingParams, preprocess_file.DatasetParams)
    assert {key for section in sections for key in keys(section) if not re.search(rf"\b{key}\b", written)} == set()


@pytest.mark.lab
def test_a_model_learns_the_conversations_of_the_page(cstool):
    code, _, params, runs, *_ = blocks("instructions")
    run_python(code)
    command = consoles("instructions")[0].splitlines()[0].removeprefix("$ cstool ")
    assert cstool(*shlex.split(command)).code == 0
    Path("capitals.yaml").write_text(params)
    train, _, ask = runs.partition("\n")
    assert cstool(*shlex.split(train)[1:]).code == 0
    assert cstool(*shlex.split(ask)[1:]).stdout == "User: The capital of Mali?\nAssistant: Bamako.\n"


@pytest.mark.lab
def test_the_digits_are_learnt_as_the_page_says(cstool):
    command = re.search(r"`cstool (run --params params/fc_mnist.yaml [^`]*)` then gets ([\d.]+) %", page("data"))
    assert cstool("data", "prepare", "digits", "--output", "datasets/mnist").code == 0
    outcome = cstool(*command[1].split())
    [accuracy] = re.findall(r"eval/accuracy = ([\d.]+)", outcome.stdout + outcome.stderr)[-1:]
    assert abs(100 * float(accuracy) - float(command[2])) < 1


@pytest.mark.parametrize("kind", ["text", "mlm", "span", "instruct"])
def test_every_flag_of_preparation_is_explained(cstool, kind):
    listed = set(re.findall(r"^  (--\w+)", cstool("data", "prepare", kind, "--help").stdout, re.MULTILINE))
    assert {flag for flag in listed if flag not in page("data") + page("instructions")} == {"--debug"}


# Estimates


@pytest.mark.lab
def test_estimate(cstool):
    commands, report, *_ = blocks("estimate")
    assert [outcome.stderr for outcome in run_console(cstool, commands)] == [""] * 4
    assert min(Path(name).stat().st_size for name in ("estimate.png", "step.json")) > 10_000
    command, _, printed = report.partition("\n")
    assert cstool(*shlex.split(command.removeprefix("$ cstool "))).stdout == printed


def test_estimate_of_several_ranks(cstool, monkeypatch):
    """What is counted is there as it is printed; times are other ones on every machine."""
    monkeypatch.setattr(host_rates, "rates_file", lambda: Path("host.yaml"))
    host_rates.save_rates(round_rates())
    (console,) = (text for text in blocks("estimate") if "--ranks" in text)
    command, _, shown = console.partition("\n")
    outcome = cstool(*shlex.split(command.removeprefix("$ cstool ")))
    assert (outcome.code, outcome.stderr) == (0, "")
    found, expected = ([line.partition("  ") for line in text.splitlines()] for text in (outcome.stdout, shown))
    assert [name for name, _, _ in found[3:]] == [name for name, _, _ in expected[3:]]
    counted = {"ranks", "weights", "gradients", "link", "MemoryX"}
    assert [line for line in found if line[0] in counted] == [line for line in expected if line[0] in counted]
    assert found[0] == expected[0]


# Runs


@pytest.mark.lab
def test_evaluation(cstool):
    kinds = ["yaml", "console", "text", "console", "text", "text", "console"]
    params, train, metrics, evaluate, table, end, load = blocks("evaluation", *kinds)
    Path("two_sets.yaml").write_text(params)
    log = plain_lines(run_console(cstool, train)[-1].stdout)
    assert {*plain_lines(metrics), *plain_lines(end), "Training completed successfully!"} <= set(log)
    names = sorted(path.name for path in Path("checkpoints/two_sets").glob("*.mdl"))
    assert {"model_checkpoint_8.mdl", "model_checkpoint_16.mdl"} <= set(names)
    assert len([name for name in names if name.startswith("checkpoint")]) == 3
    assert plain_lines(run_console(cstool, evaluate)[-1].stdout)[-7:-4] == plain_lines(table)
    run_console(cstool, load)


@pytest.mark.lab
def test_memoryx(cstool):
    run, log, look, seen, console = blocks("memoryx", "console", "text", "python", "text", "console")
    _, trained = run_console(cstool, run)
    assert set(plain_lines(trained.stdout)) >= set(plain_lines(log))
    looked, seen = (re.sub(r"CRC-32 [0-9a-f]{8}", "CRC-32 N", text) for text in (run_python(look), seen))
    assert plain_lines(looked) == plain_lines(seen)
    verbs = [command.split()[1] for command in check_console(cstool, console)]
    assert verbs == ["list", "info", "verify", "diff", "copy"]


def typed_well(command: str) -> str:
    """Return what a command prints that has nothing to complain of."""
    return typed(command.removeprefix("$ ")).said.replace(str(Path.cwd()), "/home/me")


@pytest.mark.lab
def test_cluster(cstool, monkeypatch):
    # As in other processes, whose checkpoints are compared with those of this one.
    monkeypatch.setattr(onednn_float32, "SMALL_FLOPS", 4_000_000)
    write_data(Path())
    kinds = ["console", "text", "console", "console", "console", "text", "text", "console", "console", "text"]
    # These are about Slurm: see `test_slurm.py`.
    slurm = ["console", "text", "console", "text", "text", "console"]
    two_ranks, log, same, launch, shards, kept, streamed, two_hosts, *_ = blocks("cluster", *kinds, *slurm, "text")
    done = typed_well(two_ranks)
    assert set(plain_lines(done)) >= set(plain_lines(log))
    assert len(check_console(cstool, same)) == 2
    differs = cstool("checkpoint", "diff", "checkpoints/one_process:3", "checkpoints/two_ranks:3").stdout
    assert differs.splitlines()[-2] in same.splitlines()
    typed_well(launch)
    done = typed_well(shards)
    assert set(plain_lines(done)) >= set(plain_lines(kept))
    done = typed_well(shards.replace("-n 3", "-n 2").replace("--max_steps 4", "--max_steps 5"))
    assert set(plain_lines(done)) >= set(plain_lines(streamed))
    # The tests have one host.
    typed_well(two_hosts.replace("alpha,beta", "localhost"))
    differs = cstool("checkpoint", "diff", "checkpoints/one_process:3", "checkpoints/two_hosts:3").stdout
    assert differs.splitlines()[-2] in same.splitlines()


@pytest.mark.lab
def test_trace(cstool):
    run, log, look, seen = blocks("trace", "console", "text", "python", "text")
    _, trained = run_console(cstool, run)
    assert log in trained.stdout
    # Which of the lanes takes a sum, and which lane comes first, is another each time.
    assert set(plain_lines(run_python(look))) == set(plain_lines(seen))


def tree(folder: Path) -> str:
    """Return all that is in a folder, with what links point to."""
    entries = sorted([folder, *folder.rglob("*")])
    return "\n".join(f"{path} -> {path.readlink()}" if path.is_symlink() else str(path) for path in entries)


@pytest.mark.takes("a whole run, and Python that looks at it")
def test_runs(cstool):
    kinds = ["console", "text", "text", "text", "python", "text", "text"]
    run, left, before, summary, look, seen, _ = blocks("runs", *kinds)
    _, trained = run_console(cstool, run)
    printed = [line.partition("INFO:   ")[2] for line in trained.stdout.splitlines()]
    begin = printed.index("=" * 75)
    assert printed[begin : begin + len(before.splitlines())] == before.splitlines()
    found = plain_lines("\n".join(printed[printed.index("Run summary:") :]))
    # How long parts took decides which of them are worth a word.
    shown = [line for line in plain_lines(summary) if " time " not in line]
    assert [line for line in found if " time " not in line] == shown
    assert plain_lines(tree(Path("checkpoints/small")).replace(socket.gethostname(), "host")) == plain_lines(left)
    assert run_python(look) == seen


@pytest.mark.takes("a run with all that it can log")
def test_all_tags_of_events_are_on_the_page_and_a_small_picture(cstool):
    assert cstool("data", "prepare", "text", "--output", "datasets/text", "--sequence_length", "128").code == 0
    scaled = "precision.loss_scaling_factor=dynamic"
    flags = ["sparsity=0.5", "callbacks=[{ComputeNorm: {}}]", "loop.eval_steps=1", scaled]
    command = ("run", "--params", "params/gpt_tiny.yaml", "--mode", "train_and_eval", "--max_steps", "1", "--set")
    assert cstool(*command, *(f"trainer.init.{flag}" for flag in flags)).code == 0
    found = {
        re.sub(r"^sparsity/.*/", "sparsity/WEIGHTS/", re.sub(r"^(\w+_norm)/(?!layer).*", r"\1/WEIGHT", tag))
        for tag in scalars_of(Path("checkpoints/gpt_tiny/events"))
    }
    rows = re.findall(r"^\| (`.*?`) \|.* \| (?:ours|the vendor's) \|$", page("runs"), re.MULTILINE)
    listed = {tag for row in rows for tag in re.findall(r"`(.*?)`", row)}
    assert {re.sub(r"layer_\d", "layer_N", tag) for tag in found} == listed
    (image,) = re.findall(r"\]\(../(images/.*?)\)", page("runs"))
    assert 10_000 < (PROJECT / "docs" / image).stat().st_size < 200_000


# Models of other kinds


@pytest.mark.lab
@pytest.mark.parametrize(
    ("name", "made", "folder_key", "vocabulary_key"),
    [
        ("encoders", "mlm", "data_dir", "vocab_file"),
        ("encoder_decoders", "spans", "src_data_dir", "src_vocab_file"),
        ("vision", "", "", ""),
    ],
)
def test_the_commands_of_a_page_train_the_stock_file(cstool, tmp_path, name, made, folder_key, vocabulary_key):
    """For two steps; texts are those of this project's readers of data."""
    prepare, train, *rest = commands_of(page(name))
    words, settings = prepare.split(), []
    if made:
        words = [*words[:3], PROJECT / "cstool" / "training" / "data", *words[3:], "--val_fraction", 0.2]
        settings = ["--set", f"trainer.init.model_dir={tmp_path / 'model_dir'}"]
        for part in ("train", "val"):
            loader, data = f"trainer.fit.{part}_dataloader", tmp_path / "datasets" / made
            settings += ["--set", f"{loader}.{folder_key}={data / part}"]
            settings += ["--set", f"{loader}.{vocabulary_key}={data / 'vocab.txt'}"]
    outcome = cstool(*words)
    assert outcome.code == 0, outcome.stderr
    assert cstool(*train.split(), "--max_steps", 2, "--json", *settings).document["evaluations"][-1]["step"] == 2
    if name == "encoder_decoders":
        outcome = cstool(*shlex.split(rest[0]), *settings)
        assert outcome.code == 0, outcome.stderr
        assert re.search(r"The text has \d+ tokens, ended by (length|end_of_text)\.", outcome.stderr)
    elif name == "encoders":
        fill_in, embed = (command for command in commands_of(page("infer")) if "bert_tiny" in command)
        outcome = cstool(*shlex.split(fill_in), *settings)
        assert (outcome.code, len(outcome.stdout.splitlines())) == (0, 2), outcome.stderr
        assert outcome.stdout.splitlines()[1].count(", ") == 2
        assert cstool(*shlex.split(embed), *settings).code == 0
        assert np.load("vectors.npy").shape == (2, 128)


# Inference


def shape(value: Any) -> Any:
    """Return the keys and types of a document, with one entry of each list."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    return [shape(value[0])] if isinstance(value, list) else type(value).__name__


def heads(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("---")]


@pytest.mark.lab
def test_infer(cstool):
    kinds = ["console", "text", "text", "console", "text", "console", "json"]
    kinds += ["console", "text", "console", "text", "console", "console", "text"]
    one, text, log, several, texts, script, document, *rest = blocks("infer", *kinds)
    # Those of encoders are typed where one is trained.
    searched, found, ranks, from_ranks, _, classes, table = rest
    Path("source.txt").write_text("def f(x):\n    return x\n\n\n" * 300)
    data = "source.txt", "--output", "datasets/text", "--sequence_length", "128"
    assert cstool("data", "prepare", "text", *data).code == 0
    steps = "--max_steps", "3", "--set", "trainer.fit.train_dataloader.batch_size=4", "trainer.init.checkpoint.steps=3"
    assert cstool("run", "--params", "params/llama_tiny.yaml", *steps).code == 0
    [outcome] = run_console(cstool, one)
    assert text.startswith("def ")
    assert outcome.stdout.startswith("def ")
    said, shown = (re.sub("length|stop|end_of_text|context", "ENDING", text) for text in (outcome.stderr, log))
    assert plain_lines(said)[-3:] == plain_lines(shown)
    assert heads(run_console(cstool, several)[0].stdout) == heads(texts)
    assert shape(json.loads(run_console(cstool, script)[0].stdout)) == shape(json.loads(document))
    assert [each.stdout[:9] for each in run_console(cstool, searched)] == [line[:9] for line in found.splitlines()]
    with_ranks = typed(ranks.removeprefix("$ "))
    assert with_ranks.stdout == outcome.stdout
    assert plain_lines(with_ranks.stderr)[-1:] == plain_lines(from_ranks)
    predicted = run_console(cstool, classes)[-1]
    lines = Path(re.search(r"TMP/(\S+): [\d,]+ predictions", predicted.stderr)[1]).read_text().splitlines()
    *rows, dots = table.splitlines()
    assert (lines[0], dots) == (rows[0], "...")
    assert plain_lines("\n".join(lines[: len(rows)])) == plain_lines("\n".join(rows))
