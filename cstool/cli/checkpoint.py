"""`cstool checkpoint`: look at checkpoints, compare them, and keep them in order."""

from cstool.convert.commands import convert
from cstool.foundation.terminal.command import command, new_group
from cstool.inference.commands.merge import merge
from cstool.training.commands.checkpoint_diff import diff
from cstool.training.commands.checkpoint_files import copy, delete, list_, prune, verify
from cstool.training.commands.checkpoint_info import info

_FOLDER = "checkpoints/gpt_tiny"
_THIS = "cstool checkpoint"
checkpoint_app = new_group(
    "Look at checkpoints, compare them, and keep them in order.",
    f"{_THIS} list {_FOLDER}",
    f"{_THIS} info {_FOLDER}:latest",
    epilog="\nA checkpoint is named by its file, by DIR:STEP, or by DIR:latest; where several may be named, also by a "
    "glob in quotes, such as 'model_dir/checkpoint_*.mdl'.",
)
for _name, _function, *_examples in (
    ("list", list_, f"list {_FOLDER}"),
    ("info", info, f"info {_FOLDER}:latest", f"info {_FOLDER}/checkpoint_600.mdl --tensors '*.bias' --norms"),
    ("verify", verify, f"verify {_FOLDER}:latest", f"verify '{_FOLDER}/checkpoint_*.mdl' --json"),
    ("diff", diff, f"diff {_FOLDER}:latest kept/checkpoint_600.mdl", f"diff {_FOLDER}:600 kept:600 --tensors_only"),
    ("copy", copy, f"copy {_FOLDER}:latest best.mdl"),
    ("merge", merge, f"merge {_FOLDER}_lora:latest tuned.mdl"),
    ("delete", delete, f"delete {_FOLDER}:200 --dry_run", f"delete '{_FOLDER}/checkpoint_[24]00.mdl'"),
    ("prune", prune, f"prune {_FOLDER} --keep 2"),
    (
        "convert",
        convert,
        f"convert {_FOLDER}/checkpoint_600.mdl gpt_tiny_hf --to hf",
        f"convert {_FOLDER}/checkpoint_600.mdl sparse.mdl --to sparse --sparsity 0.8",
        "convert gpt2_folder gpt2.mdl --params gpt2_small",
    ),
):
    command(checkpoint_app, _name, *(f"{_THIS} {example}" for example in _examples))(_function)
