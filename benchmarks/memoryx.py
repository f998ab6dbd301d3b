"""Train out of core, with MemoryX in a file, and measure what that takes: seconds, memory, bytes.

Every run is a process of its own, `cstool run --json`. Run from the project's folder, with room on its disk::

    python -m benchmarks.memoryx job      # 24 x Linear(2048, 2048), batch 64, AdamW
    python -m benchmarks.memoryx growth   # peak memory of a GPT of 100M to 1.3B parameters, and a plot
    python -m benchmarks.memoryx capped   # the step rate with a file against that in memory, page cache capped
    python -m benchmarks.memoryx experts  # a mixture of 32 experts, 2 GiB of weights, in less than 700 MB
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import yaml

PROJECT = Path(__file__).parent.parent
MIB = 2**20
LIBRARIES = """
from pathlib import Path
import cstool.foundation.terminal.render, cstool.cli.run, cstool.plan.compiler, cstool.training.run.run
from cstool.training.kernels.compile import all_kernels, compile_kernels
wanted = [need for need in all_kernels() if not {"bfloat16", "dropout"} & {*need.split()}]
compile_kernels(lambda _name, _done, _total: None, wanted)
lines = Path("/proc/self/status").read_text().splitlines()
print(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:")))
"""
MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")

JOB_LAYERS = 24
JOB_MEMORY_MIB = 48
"""for the buffers of MemoryX"""
GROWTH_LAYERS = (2, 4, 8, 16, 26)
"""of GPT-3 XL's width: 102M to 1.3B parameters"""
GROWTH_MEMORY_MIB = 512
EXPERTS, EXPERT_LAYERS, EXPERT_MEMORY_MIB = 32, 4, 128
EXPERT_STEPS = 8
EXPERT_TOKENS = (64, 512)
"""of a step"""
CAPPED_LAYERS = 3
CAPPED_MIB = 1500
"""what the process and its page cache may take, for a file of 3.6 GB"""


def libraries_bytes() -> int:
    """Return the resident memory of an interpreter with everything imported and the kernels loaded [bytes]."""
    done = subprocess.run([sys.executable, "-c", LIBRARIES], cwd=PROJECT, check=True, capture_output=True, text=True)
    return int(done.stdout)


@contextlib.contextmanager
def capped(cap_bytes: int | None) -> Iterator[list[str]]:
    """Yield what to put before a command so that its memory, page cache included, stays below a cap."""
    if cap_bytes is None:
        yield []
        return
    group = MEMORY_GROUPS / f"cstool-benchmark-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(cap_bytes))
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
    finally:
        group.rmdir()


def run(params: dict[str, Any], folder: Path, *flags: str, cap_bytes: int | None = None) -> dict[str, Any]:
    """Train in a process of its own and return its result."""
    model_dir = folder / "model"
    shutil.rmtree(model_dir, ignore_errors=True)
    path = folder / "params.yaml"
    path.write_text(yaml.safe_dump(params))
    command = [sys.executable, "-m", "cstool", "run", "-p", str(path), "-o", str(model_dir), "--json", *flags]
    with capped(cap_bytes) as before:
        done = subprocess.run([*before, *command], cwd=PROJECT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}\nit ended with {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout)
    result["steady_s"] = median(result["step_seconds"][1:])
    return result


def file_flags(memory_mib: int, commit_steps: int = 1) -> list[str]:
    """Return the flags of a run with MemoryX in a file."""
    flags = ["--memoryx", "file", "--memoryx_memory", f"{memory_mib}MiB"]
    return [*flags, "--set", f"trainer.init.memoryx.commit_steps={commit_steps}"]


def job_params(steps: int) -> dict[str, Any]:
    """Return 24 matrices of 2048 x 2048, between one from 784 pixels and one to 10 classes, trained by AdamW."""
    init = {
        "model": {"name": "fc_mnist", "hidden_sizes": [2048] * (JOB_LAYERS + 1), "use_bias": False},
        "optimizer": {"AdamW": {"learning_rate": 1e-4, "weight_decay": 0.1}},
        "loop": {"num_steps": steps},
        "logging": {"log_steps": steps},
    }
    loader = {"data_processor": "MNISTDataProcessor", "data_dir": str(PROJECT / "datasets" / "mnist"), "batch_size": 64}
    return {"trainer": {"init": init, "fit": {"train_dataloader": loader}}}


def gpt_params(layers: int, batch_size: int, steps: int, data: Path, checkpointing: str) -> dict[str, Any]:
    """Return a byte-level GPT of the width of GPT-3 XL on samples of 512 tokens, without clipping."""
    document = yaml.safe_load((PROJECT / "params" / "gpt3_xl.yaml").read_text())
    init = document["trainer"]["init"]
    init["model"] |= {"vocab_size": 256, "num_hidden_layers": layers, "max_position_embeddings": 512}
    init["precision"] = {"max_gradient_norm": None}
    init["loop"], init["checkpoint"] = {"num_steps": steps}, {"steps": 0}
    init["activation_checkpointing"] = checkpointing
    loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(data / "train"), "batch_size": batch_size}
    return {"trainer": {"init": init, "fit": {"train_dataloader": loader}}}


def expert_params(tokens: int, data: Path) -> dict[str, Any]:
    """Return a byte-level GPT whose layers have 32 experts of 4.2M parameters each, of which a token meets two."""
    document = gpt_params(EXPERT_LAYERS, tokens // 64, EXPERT_STEPS, data, "auto")
    document["trainer"]["init"]["model"] |= {
        "hidden_size": 1024,
        "num_heads": 8,
        "filter_size": 2048,
        "max_position_embeddings": 64,
        "moe": {"num_experts": EXPERTS, "top_k": 2, "load_balancing_loss_coef": 0.01},
    }
    return document


def text_of_512_tokens(folder: Path, tokens: int = 512) -> Path:
    """Prepare the sources of the standard library as samples of 512 bytes, or another number."""
    data = folder / f"text_{tokens}"
    command = ["data", "prepare", "text", "--output", str(data), "--sequence_length", str(tokens)]
    subprocess.run([sys.executable, "-m", "cstool", *command], cwd=PROJECT, check=True, capture_output=True)
    return data


def job(folder: Path, rounds: int) -> None:
    """Compare a file with and without commits, and main memory."""
    libraries = libraries_bytes()
    sides = {
        "in memory": ["--memoryx", "ram"],
        "file, commit_steps 0": [*file_flags(JOB_MEMORY_MIB, 0), "--lanes", "1"],
        "file, a commit every step": [*file_flags(JOB_MEMORY_MIB), "--lanes", "1"],
    }
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, flags in sides.items():
            found[name].append(run(job_params(12), folder, *flags))
    print(f"{JOB_LAYERS} x Linear(2048, 2048), batch 64, AdamW; measured on this host, {rounds} rounds of 12 steps,")
    print(f"peak resident memory above the {libraries / 1e6:.0f} MB of the interpreter with its libraries and kernels")
    for name, results in found.items():
        step_s = median(result["steady_s"] for result in results)
        peak = max(result["peak_resident_bytes"] for result in results) - libraries
        print(f"  {name:<28}{step_s:6.2f} s/step{peak / 1e6:8.0f} MB{_traffic(results[-1])}")
    print("for comparison, measured elsewhere on a machine of this kind: DeepSpeed ZeRO-3, NVMe, 2.1 to 2.4 s/step,")
    print("2081 to 3889 MB; PyTorch, all in memory, 0.69 s/step, 2140 MB")


def growth(folder: Path, plot: Path | None) -> None:
    """Show that peak memory, but for activations, does not grow with the model."""
    data, libraries, rows = text_of_512_tokens(folder), libraries_bytes(), []
    for layers in GROWTH_LAYERS:
        params = gpt_params(layers, 1, 2, data, "always")
        result = run(params, folder, *file_flags(GROWTH_MEMORY_MIB))
        activations = result["memory_bytes"]["activations"]
        rows.append((result["parameters"], result["peak_resident_bytes"], activations))
        rest = result["peak_resident_bytes"] - activations
        print(
            f"  {layers:>2} layers {result['parameters'] / 1e6:>6.0f}M parameters, state "
            f"{12 * result['parameters'] / 1e9:>5.1f} GB: peak {result['peak_resident_bytes'] / 1e6:>5.0f} MB, of it "
            f"activations {activations / 1e6:>4.0f} MB, the rest {rest / 1e6:>4.0f} MB{_traffic(result)}",
            flush=True,
        )
    rest = [peak - activations for _, peak, activations in rows]
    print(f"  interpreter and libraries alone: {libraries / 1e6:.0f} MB; --memoryx_memory {GROWTH_MEMORY_MIB}MiB")
    print(f"  the rest from the smallest to the largest model: {(max(rest) / min(rest) - 1) * 100:.1f} % apart")
    if plot is not None:
        _draw(plot, rows)


def experts(folder: Path) -> None:
    """Train a mixture that is larger than the memory it takes, with many tokens in a step and with few."""
    data, libraries = text_of_512_tokens(folder, 64), libraries_bytes()
    print(f"  interpreter and libraries alone: {libraries / 1e6:.0f} MB; --memoryx_memory {EXPERT_MEMORY_MIB}MiB")
    for tokens in EXPERT_TOKENS:
        result = run(expert_params(tokens, data), folder, *file_flags(EXPERT_MEMORY_MIB, 0), "--lanes", "1")
        weights, memoryx = 4 * result["parameters"], result["memoryx"]
        panels = 2 * EXPERTS * EXPERT_LAYERS * len(result["losses"])
        print(
            f"  {tokens} tokens in a step: weights {weights / 2**30:.2f} GiB, with moments {3 * weights / 2**30:.2f}; "
            f"peak {result['peak_resident_bytes'] / 1e6:.0f} MB, {result['steady_s']:.1f} s/step{_traffic(result)}"
        )
        print(
            f"    {memoryx['idle_panels'] / panels:.0%} of the panels of experts were idle, and updated in "
            f"{memoryx['idle_visits']:,} visits in place of {memoryx['idle_panels']:,}; with all in use a step reads "
            # Weights twice, or once more for their update, and moments: docs/training/memoryx.md.
            f"{4 * weights / 1e9:.1f} to {5 * weights / 1e9:.1f} GB and writes {3 * weights / 1e9:.1f} GB",
            flush=True,
        )


def against_memory(folder: Path, rounds: int) -> None:
    """Compare step rates where compute exceeds I/O, with a page cache that the file does not fit."""
    data = text_of_512_tokens(folder)
    params = gpt_params(CAPPED_LAYERS, 4, 6, data, "always")
    sides: dict[str, tuple[list[str], int | None]] = {
        "in memory": (["--memoryx", "ram"], None),
        "file": (file_flags(GROWTH_MEMORY_MIB), CAPPED_MIB * MIB),
    }
    ratios = []
    for _ in range(rounds):
        seconds = {}
        for name, (flags, cap_bytes) in sides.items():
            result = run(params, folder, *flags, cap_bytes=cap_bytes)
            seconds[name] = result["steady_s"]
            cap = "" if cap_bytes is None else f", process and page cache within {cap_bytes / 1e6:.0f} MB"
            print(f"  {name:<10}{result['steady_s']:6.2f} s/step{cap}{_traffic(result)}", flush=True)
        ratios.append(seconds["in memory"] / seconds["file"])
    print(f"  step rate with a file, of that in memory: {median(ratios):.2f} (rounds: {_listed(ratios)})")


def _traffic(result: dict[str, Any]) -> str:
    memoryx = result["memoryx"]
    if memoryx is None:
        return ""
    steps = len(result["losses"])
    read, written = memoryx["read_bytes"] / steps / 1e9, memoryx["written_bytes"] / steps / 1e9
    hidden = max(0.0, 1 - memoryx["waited_s"] / memoryx["busy_s"])
    return f"; a step reads {read:.2f} GB, writes {written:.2f} GB, {hidden:.0%} of the time of I/O hidden"


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:.2f}" for number in numbers)


def _draw(path: Path, rows: Sequence[tuple[int, int, int]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.6), layout="constrained")
    millions = [parameters / 1e6 for parameters, _, _ in rows]
    axes.plot(millions, [16 * p / 1e9 for p, _, _ in rows], "o--", label="weights, gradients, moments (computed)")
    axes.plot(millions, [peak / 1e9 for _, peak, _ in rows], "o-", label="peak resident memory (measured)")
    axes.plot(millions, [(p - a) / 1e9 for _, p, a in rows], "o-", label="the same without activations (measured)")
    axes.set(xlabel="parameters [millions]", ylabel="GB on this host", yscale="log")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["job", "growth", "capped", "experts"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=PROJECT, help="where there is room on the disk")
    parser.add_argument("--plot", type=Path, help="PNG of `growth`")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix=".benchmark-", dir=asked.folder) as name:
        folder = Path(name)
        match asked.what:
            case "job":
                job(folder, asked.rounds)
            case "growth":
                growth(folder, asked.plot)
            case "capped":
                against_memory(folder, asked.rounds)
            case "experts":
                experts(folder)


if __name__ == "__main__":
    main()
