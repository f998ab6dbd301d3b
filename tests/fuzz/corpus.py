"""Small files of every kind that a command reads, all whole: what inputs are made of."""

import json
import os
import shutil
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from cstool.cli import main
from cstool.csl.fabric.simulation import Simulation
from cstool.csl.fabric.stats import stats_document
from cstool.csl.fabric.trace import Recorder
from cstool.csl.sdk import cslc
from cstool.csl.sdk.artifact import read_program
from cstool.training.store import CheckpointReader
from tests.end_to_end.test_convert_vendor import vendor_state
from tests.reference import hf_models as hf
from tests.reference.vendor_files import write_vendor

LENGTH = 16
ADAM = {"AdamW": {"betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "learning_rate": 1e-2}}
GPT = {"name": "gpt2", "vocab_size": 256, "hidden_size": 8, "num_heads": 2, "num_hidden_layers": 1, "filter_size": 16}
GPT |= {"max_position_embeddings": LENGTH, "dropout_rate": 0.0, "attention_dropout_rate": 0.0}
LLAMA: dict[str, Any] = GPT | {"name": "llama", "hidden_size": 16, "num_heads": 4, "dropout_rate": 0.1}
del LLAMA["attention_dropout_rate"]
LLAMA |= {"position_embedding_type": "rotary", "rotary_dim": 4, "nonlinearity": "swiglu", "norm_type": "rmsnorm"}
LLAMA |= {"attention_module": "multiquery_attention", "extra_attention_params": {"num_kv_groups": 2}}
LLAMA |= {f"use_{part}": False for part in ("projection_bias_in_attention", "ffn_bias_in_attention", "ffn_bias")}
LLAMA["share_embedding_weights"] = False
SCHEDULERS = [
    {"SequentialLR": {"schedulers": [
        {"LinearLR": {"initial_learning_rate": 0.0, "end_learning_rate": 3e-3, "total_iters": 2}},
        {"CosineDecayLR": {"initial_learning_rate": 3e-3, "end_learning_rate": 3e-4, "total_iters": 5}},
    ]}}
]  # fmt: skip
CALLBACKS: list[Any] = [
    {"KeepNCheckpoints": {"n": 2}},
    {"SaveCheckpointState": {"k": 1, "checkpoint_states": "model"}},
    {"CheckLoss": {}},
]
STOPPING = [{"EarlyStopping": {"monitor": "eval/loss", "patience": 2}}]
LEGACY = {
    "train_input": {"data_processor": "GptHDF5MapDataProcessor", "data_dir": "text/train", "batch_size": 4,
                    "shuffle": False, "num_workers": 8},
    "eval_input": {"data_processor": "GptHDF5MapDataProcessor", "data_dir": "text/val", "batch_size": 4},
    "model": GPT | {"mixed_precision": True, "fp16_type": "cbfloat16"},
    "optimizer": {"optimizer_type": "AdamW", "betas": [0.9, 0.95], "weight_decay_rate": 0.1, "max_gradient_norm": 1.0,
                  "learning_rate": [{"scheduler": "Linear", "initial_learning_rate": 0.0, "end_learning_rate": 1e-3,
                                     "total_iters": 5}]},
    "runconfig": {"max_steps": 2, "eval_steps": 1, "checkpoint_steps": 2, "log_steps": 1, "seed": 1,
                  "model_dir": "model_dir"},
}  # fmt: skip


def trainer(model: dict[str, Any], data: str = "text", batch_size: int = 4, **init: Any) -> dict[str, Any]:
    """Return a params file of the trainer layout."""
    mnist = model["name"] == "fc_mnist"
    names = ("train", "val")
    loader = {"data_processor": "MNISTDataProcessor" if mnist else "GptHDF5MapDataProcessor", "batch_size": batch_size}
    parts = [{"data_dir": data, "split": part} if mnist else {"data_dir": f"{data}/{part}"} for part in names]
    base: dict[str, Any] = {
        "model_dir": "model_dir",
        "model": model,
        "optimizer": ADAM,
        "precision": {"max_gradient_norm": 1.0},
    }
    base |= {"loop": {"max_steps": 2, "eval_frequency": 1, "eval_steps": 1}, "checkpoint": {"steps": 1}}
    base |= {"logging": {"log_steps": 1}, "seed": 1}
    loaders = {"train_dataloader": {**loader, **parts[0], "shuffle": True}, "val_dataloader": {**loader, **parts[1]}}
    return {"trainer": {"init": {**base, **init}, "fit": loaders}}


def cstool(*arguments: str) -> None:
    """Type a command that must succeed."""
    sys.argv = ["cstool", *arguments]
    if code := main():
        raise AssertionError(f"{arguments}: {code}")


def make_corpus(folder: Path) -> None:
    """Make all files, and stay in the folder; each kind of command has been typed once then."""
    folder.mkdir(parents=True)
    os.chdir(folder)
    _write_texts()
    params = {
        "gpt": trainer(GPT, schedulers=SCHEDULERS, callbacks=CALLBACKS),
        "llama": trainer(LLAMA, optimizer={"SGD": {"learning_rate": 0.01, "momentum": 0.9}}),
        "sparse": trainer(GPT, sparsity={"algorithm": "rigl", "sparsity": 0.5, "update": {"freq": 1}}),
        "stopping": trainer(GPT, callbacks=STOPPING, optimizer={"Adam": {"learning_rate": 0.1}}),
        "file": trainer(GPT, memoryx={"store": "file", "memory": "32MiB"}),
        "mnist": trainer({"name": "fc_mnist", "hidden_sizes": [6, 4], "dropout": 0.1}, "digits"),
        "legacy": LEGACY,
    }
    params["several"] = {"trainer": [params["gpt"], params["gpt"]]}
    for name, tree in params.items():
        Path(f"{name}.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))
    package = Path(main.__code__.co_filename).parents[1]
    Path("system.yaml").write_text((package / "model/system/systems/cs2.yaml").read_text())
    number = {"value": 500, "status": "X", "source": "made up"}
    Path("small.yaml").write_text(yaml.safe_dump({"extends": "cs3", "fabric": {"width": number, "height": number}}))
    prepare = ("data", "prepare", "text", "source", "--sequence_length", str(LENGTH), "--processes", "1")
    cstool(*prepare, "--output", "text")
    cstool(*prepare, "--output", "tokens", "--train_tokenizer", "257", "--val_fraction", "0.3")
    shutil.copy("tokens/tokenizer.json", "tokenizer.json")
    for name in ("gpt", "sparse", "file", "mnist"):
        run = ("run", "-p", f"{name}.yaml", "--num_steps", "2", "--sparse_kernels", "always", "--lanes", "1")
        cstool(*run, "-o", f"{name}_dir", "-c", "compiled", "--mode", "train_and_eval")
        shutil.rmtree(f"{name}_dir/cerebras_logs")
    cstool("compile", "-p", "gpt.yaml", "--out", "artifact.json")
    cstool("run", "-p", "gpt.yaml", "-m", "infer", "-o", "gpt_dir", "--prompt", "a", "--max_tokens", "2")
    cstool("run", "-p", "mnist.yaml", "-m", "infer", "-o", "mnist_dir", "--output", "classes.csv")
    cstool("estimate", "-p", "gpt.yaml", "--num_csx", "2")
    for name in ("gpt", "mnist"):
        shutil.rmtree(f"{name}_dir/cerebras_logs", ignore_errors=True)
    _write_models()
    _write_program()
    for note in ("one", "two"):
        cstool("job", "submit", "-p", "gpt.yaml", "--root", "root", "--note", note, "--job_labels", "team=a")
    lines = [{"text": "the weights stream, é", "meta": {"n": n}} for n in range(8)]
    Path("lines.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    Path("prompts.txt").write_text("a\nthe weights\n")
    Path("prompts.jsonl").write_text('{"prompt": "a"}\n{"prompt": "the weights"}\n')


def _write_texts() -> None:
    rng = np.random.default_rng(0)
    words = ["weights", "stream", "gradients", "return", "while", "é", "\n"]
    Path("source").mkdir()
    for number in range(4):
        text = " ".join(words[k] for k in rng.integers(0, len(words), 40))
        Path(f"source/{number}.txt").write_text(text)
    Path("digits").mkdir()
    for part, count in (("train", 8), ("t10k", 6)):
        pixels, labels = rng.integers(0, 256, (count, 28, 28)), rng.integers(0, 10, count)
        for kind, magic, content in (("images-idx3", 0x803, pixels), ("labels-idx1", 0x801, labels)):
            header = struct.pack(f">{1 + content.ndim}I", magic, *content.shape)
            Path(f"digits/{part}-{kind}-ubyte").write_bytes(header + content.astype(np.uint8).tobytes())


def _write_program() -> None:
    """Compile a program of the fabric, and run it for a while."""
    shutil.copytree(Path(__file__).parents[2] / "examples/csl/row_reduce", "csl")
    words = "csl/layout.csl --fabric-dims=11,5 --fabric-offsets=4,1 --params=width:4,height:3,n:8 --memcpy -o csl/out"
    if cslc.main(words.split()):
        raise AssertionError(words)
    program = read_program(Path("csl/out"))
    recorder = Recorder(program)
    simulation = Simulation(program, on_trace=recorder)
    simulation.launch(0, next(symbol for symbol in program.programs[0].symbols.values() if symbol.function))
    simulation.run_until()
    recorder.save(Path("csl/out.npz"))
    Path("csl/out/sim_stats.json").write_text(json.dumps(stats_document(simulation)))


def _write_models() -> None:
    small = {**hf.GPT2_CONFIG, "n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 11}
    hf.write_hf(Path("hf_gpt2"), small, hf.gpt2_tensors(small))
    llama = {**hf.LLAMA_CONFIG, "hidden_size": 16, "intermediate_size": 8, "num_hidden_layers": 1,
             "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 11}  # fmt: skip
    hf.write_hf(Path("hf_llama"), llama, hf.llama_tensors(llama), shards=2)
    with CheckpointReader("gpt_dir/checkpoint_2.mdl") as reader:
        arrays = {name: reader.read(name) for name in reader.tensor_names()}
    Path("vendor").mkdir()
    write_vendor(Path("vendor/vendor.mdl"), vendor_state(arrays))
