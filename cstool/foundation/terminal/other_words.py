"""Words of the vendor and of other tools that are no command or flag here, and their replacements."""

import re
import sys
from collections.abc import Collection, Iterable
from typing import Any

import typer

from cstool.foundation.words import nearest

_NO_LOGIN = (
    "nothing is sent anywhere; model_dir has the losses for TensorBoard, and `cstool appliance serve` a page of jobs"
)
_RESUMES = "nothing is to be said: the same command goes on from the latest state in model_dir"
_LORA = "--lora rank=16,alpha=32,targets=q,v --checkpoint_path BASE trains adapters beside the weights of a checkpoint"
_LEARNING_RATE = (
    "--set trainer.init.schedulers=null trainer.init.optimizer.AdamW.learning_rate=VALUE, if the file has AdamW"
)
_PRECISION = "--precision bfloat16 has products take operands of 16 bits"
_IN_THE_FILE = "a params file says it; --set KEY=VALUE overrides one of its keys, `cstool config keys` lists all"
OTHER_FLAGS = {
    "--target_device": "there is one device only, the cluster in software; leave the flag out",
    **dict.fromkeys(("--qlora", "--peft", "--adapter", "--lora_rank", "--lora_alpha"), _LORA),
    **dict.fromkeys(("--wandb", "--wandb_project", "--report_to", "--tensorboard"), _NO_LOGIN),
    **dict.fromkeys(("--resume", "--resume_from", "--resume_from_checkpoint", "--continue"), _RESUMES),
    **dict.fromkeys(("--learning_rate", "--lr"), _LEARNING_RATE),
    **dict.fromkeys(("--fp16", "--bf16", "--dtype"), _PRECISION),
    **dict.fromkeys(("--epochs", "--num_epochs"), "--set trainer.init.loop.num_epochs=N, or --max_steps N"),
    **dict.fromkeys(
        (
            *("--optimizer", "--weight_decay", "--warmup_steps", "--dropout", "--max_grad_norm", "--model", "--data"),
            *("--hidden_size", "--num_layers", "--num_hidden_layers", "--vocab_size", "--max_sequence_length"),
        ),
        _IN_THE_FILE,
    ),
    **dict.fromkeys(("--gpus", "--num_gpus", "--devices", "--device"), "--lanes N has N threads of this host compute"),
    **dict.fromkeys(("--output_dir", "--out_dir", "--save_dir"), "--model_dir DIR is where checkpoints and logs go"),
}
"""unknown flags -> hint"""
_TRAINS = "`cstool run --params FILE` trains, with --mode train_and_eval it evaluates, too"
_EVALUATES = "`cstool run --params FILE --mode eval` evaluates"
_NO_HARNESS = (
    "there is no harness of tasks here; `cstool run --params FILE --mode eval` measures the loss on held-out data"
)
_GENERATES = "`cstool run --params FILE --mode infer --prompt TEXT` generates"
_PLOTS = (
    "there is no command for it: compile, validate and `fabric routes` draw with --plot or -o, TensorBoard shows losses"
)
_REPORTS = "there is no command for it: a run ends with its summary, and its folder in model_dir/cerebras_logs keeps it"
OTHER_COMMANDS = {
    **dict.fromkeys(("fit", "train", "pretrain"), _TRAINS),
    **dict.fromkeys(
        ("fine_tune", "tune", "lora", "sft"), "`cstool finetune BASE DATA --output DIR` trains on conversations"
    ),
    **dict.fromkeys(("eval", "evaluate", "test"), _EVALUATES),
    "resume": "`cstool run` with the same flags goes on from the latest state in model_dir",
    "validate_all": "`cstool run --params FILE --mode eval_all` evaluates every checkpoint",
    **dict.fromkeys(("lm_eval", "bigcode_eval"), _NO_HARNESS),
    **dict.fromkeys(("infer", "generate", "predict", "sample", "complete"), _GENERATES),
    "talk": "`cstool chat CHECKPOINT` talks with a model",
    **dict.fromkeys(("benchmark", "load_test"), "`cstool bench serve URL` measures how fast a server answers"),
    **dict.fromkeys(("plot", "draw", "graph"), _PLOTS),
    **dict.fromkeys(("report", "summary", "summarize"), _REPORTS),
    **dict.fromkeys(("data_preprocess", "preprocess", "prepare"), "`cstool data prepare text` makes a data set"),
    "tokenize": "`cstool data prepare text --tokenizer tokenizer.json` makes a data set of its tokens",
    "data_processor": "`cstool data info` and `cstool data check` tell about a data set",
    **dict.fromkeys(("debugger", "gdb"), "`cstool fabric debug DIR` debugs a program in CSL"),
    "move": "`cstool checkpoint copy`, then `cstool checkpoint delete`",
    "export": "`cstool checkpoint convert` writes the formats of other tools",
    "list_converters": "`cstool checkpoint convert --help` names the formats",
    "convert_config": "`cstool config convert_legacy` writes a params file in the trainer layout",
    **dict.fromkeys(("submit", "queue", "ps", "status", "logs"), "`cstool job --help` lists what there is for jobs"),
}
"""unknown commands -> hint"""
_DEVICES = ("csx", "cpu", "gpu", "cuda")
_MODES = ("train", "eval", "train_and_eval", "eval_all", "infer")


def hint_for(error: typer.TyperException, context: Any) -> str | None:
    """Return the hint for an unknown command, flag or argument; None if there is none."""
    flags = [] if context is None else [name for param in context.command.params for name in param.opts]
    option = getattr(error, "option_name", "").replace("-", "_").replace("__", "--", 1)
    if option in OTHER_FLAGS and "--params" in flags:
        return OTHER_FLAGS[option]
    if found := re.match(r"No such command '(.*?)'", error.message):
        is_file = found[1].endswith((".yaml", ".yml")) and "--params" in flags
        return f"did you mean --params {found[1]}?" if is_file else OTHER_COMMANDS.get(found[1].replace("-", "_"))
    extra = re.match(r"Got unexpected extra argument\S* \((\S+)\)", error.message)
    return None if extra is None else _place_of(extra[1], flags)


def nearest_flags(option: str, possible: Iterable[str]) -> list[str]:
    """Flags of nearly the same spelling, hyphens ignored.

    >>> nearest_flags("--ddp", ["--trace", "--ranks"]), nearest_flags("--lane", ["--lanes"])
    ([], ['--lanes'])
    """
    return [flag for flag in possible if nearest(option.lstrip("-"), [flag.lstrip("-")])]


def _place_of(word: str, flags: Collection[str]) -> str | None:
    """Return the hint for a word without a flag before it, if the command takes none; None if there is none."""
    if word.lower() in _DEVICES:
        return f"{OTHER_FLAGS['--target_device'].replace('the flag', word)}"
    if word in _MODES and "--mode" in flags:
        return f"did you mean --mode {word}?"
    is_there = any(typed.partition("=")[0] in ("-p", "--params") for typed in sys.argv)
    return f"did you mean --params {word}?" if "--params" in flags and not is_there else None
