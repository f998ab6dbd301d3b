"""One input after another: a command, the files that it reads, and what is odd about them."""

import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.fuzz.mutations import odd_text, spoil

RUN_FLAGS = "--num_csx --lanes --eval_steps --seed --memoryx --memoryx_memory --memoryx_nodes --logging "
RUN_FLAGS += "--load_checkpoint_states "
RUN_FLAGS += "--system --execution_mode --recompute --model_dir --checkpoint_path --artifact --sparse_kernels --trace "
RUN_FLAGS += "--compile_dir --set"
INFER_FLAGS = "--temperature --top_k --top_p --stop --batch_size --output --tokenizer --prompt --seed --lanes --set"
PLAN_FLAGS = "--system --num_csx --batch_per_csx --sparsity --tokens --memoryx --execution_mode --recompute --csv --set"
LENGTHS = ("--num_steps", "--max_tokens", "--max_steps")
"""flags that say how long a command takes"""
KEYS = "model.hidden_size model.num_heads model.name seed loop.max_steps optimizer precision.max_gradient_norm".split()


@dataclass(frozen=True)
class Recipe:
    """A kind of input.

    Args:
        command: as it is counted
        items: files and folders that it needs
        arguments: of it; typed as they are, or with odd ones beside them
        flags: with a value, that may stand there, too
        often: how often it is drawn, compared with others
        targets: globs of the files that may be spoilt; () for all items
    """

    command: str
    items: str
    arguments: str
    flags: str = ""
    often: int = 4
    targets: str = ""


STEP = "--num_steps 1 --sparse_kernels always --lanes 1 -c compiled"
WRITE = "--max_tokens 2 --lanes 1"
RECIPES = [
    Recipe("run", "gpt.yaml text compiled", f"run -p gpt.yaml {STEP}", RUN_FLAGS, 24, "gpt.yaml"),
    Recipe("run", "gpt.yaml text compiled", f"run -p gpt.yaml {STEP}", RUN_FLAGS, 6),
    Recipe("run", "llama.yaml text", f"run -p llama.yaml {STEP}", RUN_FLAGS, 8, "llama.yaml"),
    Recipe("run", "sparse.yaml text compiled", f"run -p sparse.yaml {STEP}", RUN_FLAGS, 8, "sparse.yaml"),
    Recipe("run", "legacy.yaml text", f"run -p legacy.yaml {STEP}", RUN_FLAGS, 8, "legacy.yaml"),
    Recipe("run", "stopping.yaml text compiled", f"run -p stopping.yaml -m train_and_eval {STEP}", RUN_FLAGS, 6,
           "stopping.yaml text/val/*"),
    Recipe("run", "several.yaml text", f"run -p several.yaml {STEP}", "", 2, "several.yaml"),
    Recipe("run", "mnist.yaml digits compiled", f"run -p mnist.yaml {STEP}", RUN_FLAGS, 8, "mnist.yaml digits/*"),
    Recipe("run, resumed", "gpt.yaml text gpt_dir compiled", f"run -p gpt.yaml -o gpt_dir {STEP}", RUN_FLAGS, 10,
           "gpt_dir/checkpoint_2.mdl gpt_dir/*"),
    Recipe("run, resumed", "sparse.yaml text sparse_dir compiled", f"run -p sparse.yaml -o sparse_dir {STEP}", "", 8,
           "sparse_dir/checkpoint_2.mdl"),
    Recipe("run, resumed", "file.yaml text file_dir compiled", f"run -p file.yaml -o file_dir {STEP}", "", 10,
           "file_dir/memoryx* file_dir/memoryx.h5.commit"),
    Recipe("run, artifact", "gpt.yaml text artifact.json", f"run -p gpt.yaml --artifact artifact.json {STEP}", "", 8,
           "artifact.json"),
    Recipe("run, artifact", "gpt.yaml text compiled", f"run -p gpt.yaml {STEP}", "", 4, "compiled/*"),
    Recipe("run, eval", "gpt.yaml text gpt_dir compiled", "run -p gpt.yaml -m eval -o gpt_dir -c compiled", RUN_FLAGS,
           6, "gpt_dir/checkpoint_2.mdl text/val/*"),
    Recipe("run, eval", "gpt.yaml text gpt_dir compiled", "run -p gpt.yaml -m eval_all -o gpt_dir -c compiled", "", 3),
    Recipe("infer", "gpt.yaml text gpt_dir", f"run -p gpt.yaml -m infer -o gpt_dir --prompt a {WRITE}", INFER_FLAGS, 8),
    Recipe("infer", "gpt_dir", f"run -m infer --checkpoint_path gpt_dir/checkpoint_2.mdl --prompt a {WRITE}"
           " --tokenizer bytes", INFER_FLAGS, 8, "gpt_dir/checkpoint_2.mdl"),
    Recipe("infer", "gpt.yaml text gpt_dir prompts.txt", "run -p gpt.yaml -m infer -o gpt_dir --prompt_file "
           f"prompts.txt {WRITE}", INFER_FLAGS, 4, "prompts.txt"),
    Recipe("infer", "gpt.yaml text gpt_dir prompts.jsonl", "run -p gpt.yaml -m infer -o gpt_dir --prompt_file "
           f"prompts.jsonl {WRITE}", INFER_FLAGS, 4, "prompts.jsonl"),
    Recipe("infer", "gpt.yaml text gpt_dir tokenizer.json", "run -p gpt.yaml -m infer -o gpt_dir --tokenizer "
           f"tokenizer.json --prompt a {WRITE}", "", 4, "tokenizer.json"),
    Recipe("infer", "mnist.yaml digits mnist_dir", "run -p mnist.yaml -m infer -o mnist_dir --output classes.csv",
           INFER_FLAGS, 4, "mnist.yaml digits/* mnist_dir/checkpoint_2.mdl"),
    Recipe("compile", "gpt.yaml", "compile -p gpt.yaml -c out --validate_only", PLAN_FLAGS, 6),
    Recipe("compile", "gpt.yaml", "compile -p gpt.yaml -c out", "--system --num_csx --micro_batch_size --set", 2),
    Recipe("compile", "gpt.yaml", "compile -p gpt.yaml -c out --execution_mode weight_streaming", PLAN_FLAGS, 6),
    Recipe("compile", "gpt.yaml system.yaml", "compile -p gpt.yaml --system system.yaml -c out", "", 2, "system.yaml"),
    Recipe("compile", "gpt.yaml system.yaml", "compile -p gpt.yaml --system system.yaml -c out --execution_mode "
           "weight_streaming", "", 6, "system.yaml"),
    Recipe("compile", "gpt.yaml small.yaml", "compile -p gpt.yaml --system small.yaml -c out", "", 2, "small.yaml"),
    Recipe("compile show", "artifact.json", "compile show artifact.json", "", 12),
    Recipe("compile diff", "artifact.json compiled", "compile diff artifact.json compiled/A", "", 6),
    Recipe("estimate", "gpt.yaml", "estimate -p gpt.yaml --num_csx 2", PLAN_FLAGS, 8),
    Recipe("estimate", "gpt.yaml system.yaml", "estimate -p gpt.yaml --system system.yaml", PLAN_FLAGS, 6,
           "system.yaml"),
    Recipe("estimate", "llama.yaml", "estimate -p llama.yaml --num_csx 1,2,4", PLAN_FLAGS, 4),
    Recipe("validate", "sparse.yaml text", "validate -p sparse.yaml --num_steps 1 --lanes 1 -o out",
           "--sparsity --max_loss_gap --tolerance --num_csx --set", 1),
    Recipe("system", "system.yaml", "system show system.yaml", "", 10),
    Recipe("config", "gpt.yaml", "config validate gpt.yaml", "--set", 24),
    Recipe("config", "legacy.yaml", "config validate legacy.yaml", "--set", 16),
    Recipe("config", "sparse.yaml", "config validate sparse.yaml", "--set", 8),
    Recipe("config", "llama.yaml", "config show llama.yaml", "--set", 12),
    Recipe("config", "several.yaml", "config show several.yaml", "--set", 4),
    Recipe("config", "mnist.yaml", "config stats mnist.yaml", "--set", 6),
    Recipe("config", "gpt.yaml", "config stats gpt.yaml", "--set", 8),
    Recipe("config", "legacy.yaml", "config convert_legacy legacy.yaml", "--out", 16),
    Recipe("data info", "text", "data info text", "", 8, "text/prepared.json text/*"),
    Recipe("data info", "tokens", "data info tokens", "", 8, "tokens/prepared.json tokens/*.json tokens/*/*"),
    Recipe("data info", "digits", "data info digits", "", 6, "digits/*"),
    Recipe("data check", "text", "data check text", "--vocab_size", 10, "text/prepared.json text/*/*"),
    Recipe("data check", "tokens", "data check tokens", "--vocab_size", 10, "tokens/prepared.json tokens/*.json"),
    Recipe("data check", "digits", "data check digits", "", 6, "digits/*"),
    Recipe("data baseline", "text", "data baseline text", "", 8, "text/prepared.json text/*/*"),
    Recipe("data prepare", "source", "data prepare text source --output out --sequence_length 8 --processes 1",
           "--val_fraction --seed --shuffle_seed --packing --train_tokenizer --sequence_length --tokenizer", 8),
    Recipe("data prepare", "source tokenizer.json", "data prepare text source --output out --sequence_length 8 "
           "--processes 1 --tokenizer tokenizer.json", "", 8, "tokenizer.json"),
    Recipe("data prepare", "source tokens", "data prepare text source --output tokens --sequence_length 16 "
           "--processes 1 --train_tokenizer 257 --val_fraction 0.3", "", 6, "tokens/prepared.json"),
    Recipe("data prepare", "lines.jsonl", "data prepare text lines.jsonl --output out --sequence_length 8 "
           "--processes 1", "--jsonl_key --val_fraction --packing", 8, "lines.jsonl"),
    Recipe("config", "", "config pull gpt_tiny", "--out", 3),
    Recipe("model", "", "model list", "--json", 1),
    Recipe("model", "", "model describe gpt_tiny", "--json", 3),
    Recipe("checkpoint list", "gpt_dir", "checkpoint list gpt_dir", "", 6, "gpt_dir/*"),
    Recipe("checkpoint list", "file_dir", "checkpoint list file_dir", "", 6, "file_dir/*"),
    Recipe("checkpoint info", "gpt_dir", "checkpoint info gpt_dir/checkpoint_2.mdl --norms", "--tensors", 16,
           "gpt_dir/checkpoint_2.mdl"),
    Recipe("checkpoint info", "sparse_dir", "checkpoint info sparse_dir:2 --verify", "--tensors", 10,
           "sparse_dir/checkpoint_2.mdl"),
    Recipe("checkpoint info", "file_dir", "checkpoint info file_dir/memoryx.h5 --all", "", 10,
           "file_dir/memoryx.h5 file_dir/memoryx.h5.commit"),
    Recipe("checkpoint info", "vendor", "checkpoint info vendor/vendor.mdl", "", 4, "vendor/*"),
    Recipe("checkpoint verify", "gpt_dir", "checkpoint verify gpt_dir:latest", "", 12, "gpt_dir/checkpoint_2.mdl"),
    Recipe("checkpoint verify", "file_dir", "checkpoint verify file_dir/memoryx.h5", "", 10, "file_dir/memoryx*"),
    Recipe("checkpoint diff", "gpt_dir", "checkpoint diff gpt_dir:1 gpt_dir:2", "--rtol --atol", 8, "gpt_dir/*.mdl"),
    Recipe("checkpoint diff", "sparse_dir gpt_dir", "checkpoint diff sparse_dir:1 gpt_dir:2 --json", "", 6,
           "gpt_dir/*.mdl sparse_dir/*.mdl"),
    Recipe("checkpoint copy", "gpt_dir", "checkpoint copy gpt_dir:2 out.mdl", "", 8, "gpt_dir/checkpoint_2.mdl"),
    Recipe("checkpoint copy", "file_dir", "checkpoint copy file_dir/memoryx.h5 out.mdl", "", 8, "file_dir/memoryx*"),
    Recipe("checkpoint delete", "gpt_dir", "checkpoint delete gpt_dir:2", "", 4, "gpt_dir/*"),
    Recipe("checkpoint delete", "file_dir", "checkpoint delete file_dir/memoryx.h5", "", 4, "file_dir/*"),
    Recipe("checkpoint prune", "gpt_dir", "checkpoint prune gpt_dir --keep 1", "--keep", 6, "gpt_dir/*"),
    Recipe("checkpoint convert", "hf_gpt2", "checkpoint convert hf_gpt2 out.mdl", "", 12, "hf_gpt2/*"),
    Recipe("checkpoint convert", "hf_llama", "checkpoint convert hf_llama out.mdl", "", 12, "hf_llama/*"),
    Recipe("checkpoint convert", "vendor gpt.yaml", "checkpoint convert vendor/vendor.mdl out.mdl -p gpt.yaml", "", 16,
           "vendor/*"),
    Recipe("checkpoint convert", "gpt_dir", "checkpoint convert gpt_dir/checkpoint_2.mdl out --to hf", "--shard_size",
           8, "gpt_dir/checkpoint_2.mdl"),
    Recipe("checkpoint convert", "gpt_dir", "checkpoint convert gpt_dir/checkpoint_2.mdl out.mdl --to sparse "
           "--sparsity 0.5", "--sparsity --param_filter", 8, "gpt_dir/checkpoint_2.mdl"),
    Recipe("checkpoint convert", "sparse_dir", "checkpoint convert sparse_dir/checkpoint_2.mdl out.mdl --to dense", "",
           8, "sparse_dir/checkpoint_2.mdl"),
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One input, its files made."""

    command: str
    arguments: list[str]


def make_whole(corpus: Path, folder: Path, recipe: Recipe) -> Case:
    """Put the files of a recipe into a new folder as they are, and return what to type there."""
    folder.mkdir()
    for item in recipe.items.split():
        if (corpus / item).is_dir():
            shutil.copytree(corpus / item, folder / item, symlinks=True)
        else:
            shutil.copy(corpus / item, folder / item)
    artifacts = sorted(path.name for path in (corpus / "compiled").iterdir())
    return Case(recipe.command, recipe.arguments.replace("compiled/A", f"compiled/{artifacts[0]}").split())


def make_case(corpus: Path, folder: Path, chance: random.Random) -> Case:
    """Put the files of an input into a new folder.

    Args:
        corpus: of `make_corpus`
        folder: to be made
        chance: says which input

    Returns:
        what to type there
    """
    recipe = chance.choices(RECIPES, [recipe.often for recipe in RECIPES])[0]
    arguments = make_whole(corpus, folder, recipe).arguments
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
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, yaml.YAMLError):
            if path.is_file():
                path.write_bytes(path.read_bytes()[:-1])


def _odd_arguments(arguments: Sequence[str], flags: Sequence[str], chance: random.Random) -> list[str]:
    """Return arguments with something odd beside them, or instead of one."""
    changed = list(arguments)
    match chance.choice(["flag"] * 6 * bool(flags) + ["value", "drop", "json", "twice", "swap"]):
        case "flag":
            for _ in range(chance.choice([1, 1, 2])):
                flag = chance.choice(flags)
                value = (
                    f"trainer.init.{chance.choice(KEYS)}={odd_text(chance)}" if flag == "--set" else odd_text(chance)
                )
                changed += [flag, value]
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
        return "3" if int(word) > 3 else word
    except ValueError:
        return word
