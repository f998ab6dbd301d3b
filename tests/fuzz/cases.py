"""One input after another: a command, the files that it reads, and what is odd about them."""

import random
import re
import shutil
import sqlite3
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.fuzz.mutations import odd_text, spoil

LENGTHS = ("--num_steps", "--max_tokens", "--max_steps", "--timeout")
"""flags that say how long a command takes"""
DAMAGED = (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, RuntimeError)
DAMAGED += (yaml.YAMLError, sqlite3.Error, zipfile.BadZipFile)
"""what is raised where something to be spoilt was spoilt before"""
KEYS = "model.hidden_size model.num_heads model.name seed loop.max_steps optimizer precision.max_gradient_norm".split()
SHORT = {
    "ASK": "run -p gpt.yaml -m infer -o gpt_dir",
    "CHECKED": "--sparsity --max_loss_gap --tolerance --num_csx --set",
    "COMMIT": "file_dir/memoryx.h5.commit",
    "HELD": "--sequence_length 16 --processes 1 --train_tokenizer 257 --val_fraction 0.3",
    "HOW": "--sequence_length 8 --processes 1",
    "INFER": "--temperature --top_k --top_p --stop --batch_size --output --tokenizer --prompt --seed --lanes --set",
    "LAST": "gpt_dir/checkpoint_2.mdl",
    "PLAN": "--system --num_csx --batch_per_csx --sparsity --tokens --memoryx --execution_mode --recompute --csv --set",
    "CFLAGS": "--params --colors --fabric-dims --fabric-offsets --channels --import-path --max-inlined-iterations "
    "--comptime-func-depth-limit --width-west-buf -o",
    "CSLC": "cslc csl/layout.csl --fabric-dims=11,5 --fabric-offsets=4,1 --params=width:4,height:3,n:8 -o out --memcpy",
    "JFLAGS": "--memory --disk --time --priority --job_labels --note --max_restarts --lanes --num_csx --set",
    "QUEUE": "root/queue.db",
    "ROOT": "--root root",
    "PREPARE": "data prepare text",
    "PREPARED": "--val_fraction --seed --shuffle_seed --packing --train_tokenizer --sequence_length --tokenizer",
    "RUN": "--num_csx --lanes --eval_steps --seed --memoryx --memoryx_memory --memoryx_nodes --logging "
    "--load_checkpoint_states --system --execution_mode --recompute --model_dir --checkpoint_path --artifact "
    "--sparse_kernels --trace --compile_dir --set",
    "SORT": "run -p mnist.yaml -m infer -o mnist_dir --output classes.csv",
    "STEP": "--num_steps 1 --sparse_kernels always --lanes 1 -c compiled",
    "STREAMED": "--execution_mode weight_streaming",
    "WRITE": "--max_tokens 2 --lanes 1",
}
"""words of the table that stand for several"""
TABLE = """
24 | run -p gpt.yaml STEP | gpt.yaml text compiled | RUN | gpt.yaml
6 | run -p gpt.yaml STEP | gpt.yaml text compiled | RUN
8 | run -p llama.yaml STEP | llama.yaml text | RUN | llama.yaml
8 | run -p sparse.yaml STEP | sparse.yaml text compiled | RUN | sparse.yaml
8 | run -p legacy.yaml STEP | legacy.yaml text | RUN | legacy.yaml
6 | run -p stopping.yaml -m train_and_eval STEP | stopping.yaml text compiled | RUN | stopping.yaml text/val/*
2 | run -p several.yaml STEP | several.yaml text | | several.yaml
8 | run -p mnist.yaml STEP | mnist.yaml digits compiled | RUN | mnist.yaml digits/*
10 | run -p gpt.yaml -o gpt_dir STEP | gpt.yaml text gpt_dir compiled | RUN | LAST gpt_dir/*
8 | run -p sparse.yaml -o sparse_dir STEP | sparse.yaml text sparse_dir compiled | | sparse_dir/checkpoint_2.mdl
10 | run -p file.yaml -o file_dir STEP | file.yaml text file_dir compiled | | file_dir/memoryx* COMMIT
8 | run -p gpt.yaml --artifact artifact.json STEP | gpt.yaml text artifact.json | | artifact.json
4 | run -p gpt.yaml STEP | gpt.yaml text compiled | | compiled/*
6 | run -p gpt.yaml -m eval -o gpt_dir -c compiled | gpt.yaml text gpt_dir compiled | RUN | LAST text/val/*
3 | run -p gpt.yaml -m eval_all -o gpt_dir -c compiled | gpt.yaml text gpt_dir compiled
8 | ASK --prompt a WRITE | gpt.yaml text gpt_dir | INFER
8 | run -m infer --checkpoint_path LAST --prompt a WRITE --tokenizer bytes | gpt_dir | INFER | LAST
4 | ASK --prompt_file prompts.txt WRITE | gpt.yaml text gpt_dir prompts.txt | INFER | prompts.txt
4 | ASK --prompt_file prompts.jsonl WRITE | gpt.yaml text gpt_dir prompts.jsonl | INFER | prompts.jsonl
4 | ASK --tokenizer tokenizer.json --prompt a WRITE | gpt.yaml text gpt_dir tokenizer.json | | tokenizer.json
4 | SORT | mnist.yaml digits mnist_dir | INFER | mnist.yaml digits/* mnist_dir/checkpoint_2.mdl
6 | compile -p gpt.yaml -c out --validate_only | gpt.yaml | PLAN
2 | compile -p gpt.yaml -c out | gpt.yaml | --system --num_csx --micro_batch_size --set
6 | compile -p gpt.yaml -c out STREAMED | gpt.yaml | PLAN
2 | compile -p gpt.yaml --system system.yaml -c out | gpt.yaml system.yaml | | system.yaml
6 | compile -p gpt.yaml --system system.yaml -c out STREAMED | gpt.yaml system.yaml | | system.yaml
2 | compile -p gpt.yaml --system small.yaml -c out | gpt.yaml small.yaml | | small.yaml
12 | compile show artifact.json | artifact.json
6 | compile diff artifact.json compiled/A | artifact.json compiled
8 | estimate -p gpt.yaml --num_csx 2 | gpt.yaml | PLAN
6 | estimate -p gpt.yaml --system system.yaml | gpt.yaml system.yaml | PLAN | system.yaml
4 | estimate -p llama.yaml --num_csx 1,2,4 | llama.yaml | PLAN
1 | validate -p sparse.yaml --num_steps 1 --lanes 1 -o out | sparse.yaml text | CHECKED
10 | system show system.yaml | system.yaml
24 | config validate gpt.yaml | gpt.yaml | --set
16 | config validate legacy.yaml | legacy.yaml | --set
8 | config validate sparse.yaml | sparse.yaml | --set
12 | config show llama.yaml | llama.yaml | --set
4 | config show several.yaml | several.yaml | --set
6 | config stats mnist.yaml | mnist.yaml | --set
8 | config stats gpt.yaml | gpt.yaml | --set
16 | config convert_legacy legacy.yaml | legacy.yaml | --out
8 | data info text | text | | text/prepared.json text/*
8 | data info tokens | tokens | | tokens/prepared.json tokens/*.json tokens/*/*
6 | data info digits | digits | | digits/*
10 | data check text | text | --vocab_size | text/prepared.json text/*/*
10 | data check tokens | tokens | --vocab_size | tokens/prepared.json tokens/*.json
6 | data check digits | digits | | digits/*
8 | data baseline text | text | | text/prepared.json text/*/*
8 | PREPARE source --output out HOW | source | PREPARED
8 | PREPARE source --output out HOW --tokenizer tokenizer.json | source tokenizer.json | | tokenizer.json
6 | PREPARE source --output tokens HELD | source tokens | | tokens/prepared.json
8 | PREPARE lines.jsonl --output out HOW | lines.jsonl | --jsonl_key --val_fraction --packing | lines.jsonl
3 | config pull gpt_tiny | | --out
1 | model list | | --json
3 | model describe gpt_tiny | | --json
6 | checkpoint list gpt_dir | gpt_dir | | gpt_dir/*
6 | checkpoint list file_dir | file_dir | | file_dir/*
16 | checkpoint info LAST --norms | gpt_dir | --tensors | LAST
10 | checkpoint info sparse_dir:2 --verify | sparse_dir | --tensors | sparse_dir/checkpoint_2.mdl
10 | checkpoint info file_dir/memoryx.h5 --all | file_dir | | file_dir/memoryx.h5 file_dir/memoryx.h5.commit
4 | checkpoint info vendor/vendor.mdl | vendor | | vendor/*
12 | checkpoint verify gpt_dir:latest | gpt_dir | | LAST
10 | checkpoint verify file_dir/memoryx.h5 | file_dir | | file_dir/memoryx*
8 | checkpoint diff gpt_dir:1 gpt_dir:2 | gpt_dir | --rtol --atol | gpt_dir/*.mdl
6 | checkpoint diff sparse_dir:1 gpt_dir:2 --json | sparse_dir gpt_dir | | gpt_dir/*.mdl sparse_dir/*.mdl
8 | checkpoint copy gpt_dir:2 out.mdl | gpt_dir | | LAST
8 | checkpoint copy file_dir/memoryx.h5 out.mdl | file_dir | | file_dir/memoryx*
4 | checkpoint delete gpt_dir:2 | gpt_dir | | gpt_dir/*
4 | checkpoint delete file_dir/memoryx.h5 | file_dir | | file_dir/*
6 | checkpoint prune gpt_dir --keep 1 | gpt_dir | --keep | gpt_dir/*
12 | checkpoint convert hf_gpt2 out.mdl | hf_gpt2 | | hf_gpt2/*
12 | checkpoint convert hf_llama out.mdl | hf_llama | | hf_llama/*
16 | checkpoint convert vendor/vendor.mdl out.mdl -p gpt.yaml | vendor gpt.yaml | | vendor/*
30 | CSLC | csl | CFLAGS | csl/*.csl
10 | CSLC --arch wse3 | csl | CFLAGS | csl/*.csl
10 | fabric routes csl/out -o routes.svg | csl | --color | csl/out/* csl/out/bin/*
6 | fabric heat csl/out -o heat.svg | csl | | csl/out/sim_stats.json
6 | fabric trace csl/out.npz --pe 1.0 | csl | --link --cycles --pe | csl/out.npz
4 | fabric trace csl/out.npz --chrome out.json | csl | --cycles | csl/out.npz
4 | fabric page csl/out.npz -o out.html | csl | --every | csl/out.npz
10 | job list -a ROOT | root | --user --label --phase --limit | QUEUE
4 | job list -a --json ROOT | root | | QUEUE root/*
8 | job get jobs/A ROOT | root | | QUEUE root/jobs/*/*
8 | job events --all ROOT | root | --limit | QUEUE
4 | job events jobs/A ROOT | root | | QUEUE
6 | job logs jobs/A ROOT | root | | QUEUE root/jobs/*/*
8 | job cancel jobs/A ROOT | root | | QUEUE root/jobs/*/*
8 | job label jobs/A a=b ROOT | root | | QUEUE
4 | job wait jobs/A --timeout 0.1 ROOT | root | | QUEUE
8 | job submit -p gpt.yaml ROOT | gpt.yaml text root | JFLAGS | gpt.yaml QUEUE root/*
6 | appliance status ROOT | root | | QUEUE root/*
2 | appliance drain ROOT | root | | QUEUE
8 | checkpoint convert LAST out --to hf | gpt_dir | --shard_size | LAST
8 | checkpoint convert LAST out.mdl --to sparse --sparsity 0.5 | gpt_dir | --sparsity --param_filter | LAST
8 | checkpoint convert sparse_dir/checkpoint_2.mdl out.mdl --to dense | sparse_dir | | sparse_dir/checkpoint_2.mdl
"""


@dataclass(frozen=True)
class Recipe:
    """A kind of input: a row of the table.

    Args:
        often: how often it is drawn, compared with others
        arguments: of the command; typed as they are, or with odd ones beside them
        items: files and folders that it needs
        flags: with a value, that may stand there, too
        targets: globs of the files that may be spoilt; () for all items
    """

    often: int
    arguments: str
    items: str = ""
    flags: str = ""
    targets: str = ""

    @property
    def command(self) -> str:
        """The command as it is counted."""
        return " ".join(takewhile(str.isalpha, self.arguments.split()[:2]))


def _recipe(row: str) -> Recipe:
    often, *others = (re.sub(r"\b[A-Z]{3,}\b", lambda word: SHORT[word[0]], cell.strip()) for cell in row.split("|"))
    return Recipe(int(often), *others)


RECIPES = [_recipe(row) for row in TABLE.strip().splitlines()]


class Case(NamedTuple):
    """One input, its files made."""

    command: str
    arguments: list[str]


def make_case(corpus: Path, folder: Path, chance: random.Random) -> Case:
    """Put the files of an input that chance says into a new folder, and return what to type there."""
    recipe = chance.choices(RECIPES, [recipe.often for recipe in RECIPES])[0]
    folder.mkdir()
    for item in recipe.items.split():
        if (corpus / item).is_dir():
            shutil.copytree(corpus / item, folder / item, symlinks=True)
        else:
            shutil.copy(corpus / item, folder / item)
    artifacts = sorted(path.name for path in (corpus / "compiled").iterdir())
    jobs = sorted(path.name for path in (corpus / "root" / "jobs").iterdir())
    named = recipe.arguments.replace("compiled/A", f"compiled/{artifacts[0]}").replace("jobs/A", jobs[0])
    arguments = named.split()
    drawn = chance.random()
    if recipe.items and (drawn < 0.75 or not recipe.flags):
        for _ in range(chance.choice([1, 1, 1, 2])):
            _spoil_one(folder, recipe, chance)
    if drawn > 0.7:
        arguments = _odd_arguments(arguments, recipe.flags.split(), chance)
    return Case(recipe.command, arguments)


def _spoil_one(folder: Path, recipe: Recipe, chance: random.Random) -> None:
    globs = recipe.targets.split() or [*recipe.items.split(), *(f"{item}/**/*" for item in recipe.items.split())]
    found = sorted(path for path in folder.glob(chance.choice(globs)) if not path.name.endswith(".lock"))
    # What was spoilt before may be of no kind any more.
    if found:
        path = chance.choice(found)
        try:
            spoil(path, chance)
        except DAMAGED:
            if path.is_file():
                path.write_bytes(path.read_bytes()[:-1])


def _odd_arguments(arguments: Sequence[str], flags: Sequence[str], chance: random.Random) -> list[str]:
    """Return arguments with something odd beside them, or instead of one."""
    changed = list(arguments)
    match chance.choice(["flag"] * 6 * bool(flags) + ["value", "drop", "json", "twice", "swap"]):
        case "flag":
            for _ in range(chance.choice([1, 1, 2])):
                flag = chance.choice(flags)
                key = f"trainer.init.{chance.choice(KEYS)}=" if flag == "--set" else ""
                changed += [flag, key + odd_text(chance)]
        case "value":
            changed[chance.randrange(len(changed))] = odd_text(chance)
        case "drop":
            del changed[chance.randrange(len(changed))]
        case "json":
            changed.append("--json")
        case "twice":
            changed.append(chance.choice(changed))
        case _:
            chance.shuffle(changed)
    return [_few(word) if flag in LENGTHS else word for flag, word in zip(["", *changed], changed, strict=False)]


def _few(word: str) -> str:
    """Return a number of steps or tokens that does not take long; what is none stays as it is."""
    try:
        return "3" if float(word) > 3 else word
    except ValueError:
        return word
