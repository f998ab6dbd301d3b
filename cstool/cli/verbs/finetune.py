"""Fine-tuning from a base and a file of conversations to answers: each step is a verb of one of the products.

The folder gets `base.mdl`, if the base was a folder of Hugging Face's, `data`, the data set, `finetune.yaml`, the
params, and `run`, the folder of the run. Each is kept: the same command goes on where it was stopped.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cstool.cli.verbs.finetune_needs import Needs, check_needs, expected_text
from cstool.foundation.errors import CheckpointError, CstoolError, DataError

if TYPE_CHECKING:
    from cstool.foundation.progress.screen import OpenScreen
    from cstool.inference.completions import Completion
    from cstool.model.params import DecoderParams, Params
    from cstool.training.data import InstructionSummary
    from cstool.training.run.result import RunResult

USUAL_TOKENS = 512
"""of a row, where the model has room for as many"""
LEARNING_RATES = {"adapters": 2e-4, "all": 2e-5}
"""usual rates of adapters, and of all weights. Source: Hu et al., 2021, table 11; Taori et al., "Alpaca", 2023"""
WARMUP_SHARE = 0.03
"""of the steps, in which the rate grows. Source: Taori et al., "Alpaca", 2023"""
_MOST_ANSWER = 64
"""tokens of a shown answer"""


@dataclass(frozen=True)
class FinetuneRequest:
    """A fine-tuning.

    Args:
        base: a checkpoint (`FILE`, `DIR:STEP`), or a folder of Hugging Face's
        data: files of conversations, or folders with such files
        output: folder of all that is made
        lora: as of `cstool run --lora`; None to train all weights
        learning_rate: None for the usual one
        epochs: passes over the data
        steps: in place of epochs; None for these
        batch_size: rows of a step
        sequence_length: tokens of a row; None for as many as the model has room for, and 512 at the most
        tokenizer: "bytes" or a tokenizers JSON file; None for the base's
        chat_template: as of `prepare_instructions`
        val_fraction: share of the conversations that is held out
        precision: "float32" or "bfloat16"
        seed: of the choice of held-out conversations, the adapters, and the order of rows
        shown: number of held-out prompts that are answered before and after
        merged: file for the model with its adapters folded in; None for no such file
    """

    base: Path
    data: tuple[Path, ...]
    output: Path
    lora: str | None = "rank=16,alpha=32,targets=all"
    learning_rate: float | None = None
    epochs: float = 3.0
    steps: int | None = None
    batch_size: int = 8
    sequence_length: int | None = None
    tokenizer: str | None = None
    chat_template: str | None = None
    val_fraction: float = 0.05
    precision: str = "float32"
    seed: int = 1
    shown: int = 3
    merged: Path | None = None

    def __post_init__(self) -> None:
        """Check numbers, or raise CstoolError."""
        least = {"steps": 1, "batch_size": 1, "sequence_length": 2, "shown": 0}
        for name, limit in least.items():
            if (found := getattr(self, name)) is not None and found < limit:
                raise CstoolError(f"--{name}: must be at least {limit}, got {found}")
        for name in ("epochs", "learning_rate"):
            if (found := getattr(self, name)) is not None and not 0 < found < math.inf:
                raise CstoolError(f"--{name}: must be greater than 0, got {found:g}")
        if not 0 < self.val_fraction < 1:
            raise CstoolError(f"--val_fraction: must be greater than 0, and less than 1, got {self.val_fraction:g}")
        if self.merged is not None and (self.lora is None or self.merged.exists()):
            rule = "must be left out with --full" if self.lora is None else "must be a new file"
            raise CstoolError(f"--merge: {rule}, got {self.merged}")


@dataclass(frozen=True)
class Prepared:
    """All that is ready before the first step.

    Args:
        base: its checkpoint
        data: the data set
        params: of the run
        prompts: held-out ones, that are answered before and after
        tokenizer: "bytes" or a tokenizers JSON file
        needs: of memory and disk
    """

    base: Path
    data: InstructionSummary
    params: Params
    prompts: tuple[str, ...]
    tokenizer: str
    needs: Needs


@dataclass(frozen=True)
class Finetuned:
    """What came of it.

    Args:
        before, after: loss of the held-out answers [nats a token]
        prompts: that were answered
        answers_before, answers_after: to them
        params: file of the run
        checkpoint: the last one
        merged: the model with its adapters folded in; None where none was wanted
    """

    before: float
    after: float
    prompts: tuple[str, ...]
    answers_before: tuple[Completion, ...]
    answers_after: tuple[Completion, ...]
    result: RunResult
    params: Path
    checkpoint: Path
    merged: Path | None


def prepare(request: FinetuneRequest) -> Prepared:
    """Convert the base, make the data set, write the params file, check that the run fits; existing files stay.

    Raises:
        CstoolError: any error that the user can act on
    """
    from cstool.model.params import DecoderParams, load_params
    from cstool.training.store import open_checkpoint
    from cstool.training.store.adapters import ADAPTERS
    from cstool.training.verbs.instruction_data import prepare_instructions, show_samples
    from cstool.training.verbs.trained import params_of

    request.output.mkdir(parents=True, exist_ok=True)
    base = _checkpoint_of(request.base, request.output / "base.mdl")
    with open_checkpoint(base) as state:
        if ADAPTERS in state.values():
            way = f"cstool checkpoint merge {shlex.quote(str(base))} WHOLE.mdl makes one of it"
            raise CheckpointError(f"{base}: must be a whole model, got adapters", way)
    of_base = params_of(base, (), {})
    model = of_base.model
    if not isinstance(model, DecoderParams) or not model.makes_text:
        raise CstoolError(
            f"{base}: must be a decoder that makes text, got {model.name}", "cstool run fine-tunes other models"
        )
    tokenizer = request.tokenizer or _tokenizer_of(base, of_base)
    length = request.sequence_length or min(USUAL_TOKENS, model.max_position_embeddings)
    folder = request.output / "data"
    data = prepare_instructions(
        list(request.data),
        folder,
        sequence_length=length,
        tokenizer=tokenizer,
        chat_template=request.chat_template,
        val_fraction=request.val_fraction,
        seed=request.seed,
    )
    if data.vocab_size > model.vocab_size:
        raise DataError(
            f"{folder}: its tokens must be below the vocab_size of the base ({model.vocab_size:,}), the tokenizer has "
            f"{data.vocab_size:,}",
            "--tokenizer names the base's",
        )
    file = request.output / "finetune.yaml"
    _write_params(file, request, model, data)
    params = load_params(file)
    needs = check_needs(params, request.output, merges=request.merged is not None)
    shown = show_samples(folder, request.shown, part="val") if request.shown else []
    prompts = ("".join(text for text, learned in _before_learned(sample.pieces)) for sample in shown)
    return Prepared(base, data, params, tuple(prompts), tokenizer, needs)


def finetune(
    request: FinetuneRequest, prepared: Prepared, open_screen: OpenScreen, tell: Callable[[str], None]
) -> Finetuned:
    """Evaluate the base, train, evaluate and answer; the adapters are merged where that is wanted.

    Args:
        prepared: by `prepare`
        open_screen: shows runs
        tell: is told each stage

    Raises:
        CstoolError: any error that the user can act on
    """
    from cstool.inference.verbs.merging import merge_checkpoint
    from cstool.training.run.result import RunResult
    from cstool.training.store import find_checkpoint
    from cstool.training.verbs.run import RunRequest, run_all

    params = prepared.params
    tell("The base, on held-out answers:")
    [before] = run_all([params], RunRequest("eval", prepared.base), open_screen)
    assert isinstance(before, RunResult), "the params ask for no less"
    answers_before = _answers(prepared.base, prepared)
    goes_on = any(path for kind in ("*.mdl", "memoryx*.h5") for path in params.model_dir.glob(kind))
    if not goes_on:
        tell(expected_text(params, prepared.needs, before.evaluations[-1]))
    way: dict[str, Any] = {} if goes_on else {"checkpoint_path": prepared.base, "load_checkpoint_states": "model"}
    [result] = run_all([params], RunRequest("train_and_eval", **way), open_screen)
    assert isinstance(result, RunResult), "the params ask for no less"
    checkpoint = find_checkpoint(f"{params.model_dir}:latest")
    answers_after = _answers(checkpoint, prepared)
    if request.merged is not None:
        merge_checkpoint(checkpoint, request.merged)
    losses = (before.evaluations[-1]["loss"], result.evaluations[-1]["loss"])
    return Finetuned(
        *losses, prepared.prompts, answers_before, answers_after, result, params.path, checkpoint, request.merged
    )


def _checkpoint_of(base: Path, converted: Path) -> Path:
    """Return the checkpoint of a base; a folder of Hugging Face's is converted, unless it was before."""
    from cstool.convert.verbs import convert_checkpoint
    from cstool.training.store import find_checkpoint

    if not (base.is_dir() and (base / "config.json").is_file()):
        return find_checkpoint(base)
    if not converted.is_file():
        convert_checkpoint(base, converted)
    return converted


def _tokenizer_of(base: Path, params: Params) -> str:
    """Return the tokenizer of a base: beside it, or of the data that it was trained on."""
    from cstool.training.data import tokenizer_beside, tokenizer_of

    if (beside := tokenizer_beside(base)).is_file():
        return str(beside)
    for folder in params.data_folders:
        if (found := tokenizer_of(folder)) is not None:
            return found.name
    raise DataError(
        f"--tokenizer: must be given for {base}, beside which there is none, and whose data set is not there",
        "bytes, or the tokenizer.json of the base",
    )


def _before_learned(pieces: Sequence[tuple[str, bool]]) -> list[tuple[str, bool]]:
    """Return the pieces of a text before the first that is learned."""
    first = next((number for number, (_, learned) in enumerate(pieces) if learned), len(pieces))
    return list(pieces[:first])


def _answers(checkpoint: Path, prepared: Prepared) -> tuple[Completion, ...]:
    from cstool.inference.verbs.answer import generate

    if not prepared.prompts:
        return ()
    how: dict[str, Any] = {"max_tokens": _MOST_ANSWER, "temperature": 0.0, "truncates": True, "progress": "none"}
    found = generate(str(checkpoint), prepared.prompts, tokenizer=prepared.tokenizer, **how)
    return tuple(found.completions)


def _write_params(file: Path, request: FinetuneRequest, model: DecoderParams, data: InstructionSummary) -> None:
    """Write the params file of a run, or raise CstoolError if there is another one."""
    import yaml

    from cstool.foundation.atomic_file import write_replacing

    batch_size = min(request.batch_size, data.train.samples)
    steps = request.steps or max(1, round(request.epochs * data.train.samples / batch_size))
    warmup = max(1, round(WARMUP_SHARE * steps))
    rate = request.learning_rate or LEARNING_RATES["all" if request.lora is None else "adapters"]
    schedule = [
        {"LinearLR": {"initial_learning_rate": 0.0, "end_learning_rate": rate, "total_iters": warmup}},
        {"CosineDecayLR": {"initial_learning_rate": rate, "end_learning_rate": 0.1 * rate, "total_iters": steps}},
    ]
    loader = {"data_processor": "GptHDF5MapDataProcessor", "use_vsl": data.packing != "none"}
    part = {"train": data.train.samples, "val": data.val.samples}
    sizes = {name: max(n for n in range(1, min(batch_size, rows) + 1) if rows % n == 0) for name, rows in part.items()}
    init: dict[str, Any] = {
        "model": model.dump(),
        **({} if request.lora is None else {"lora": request.lora}),
        "optimizer": {"AdamW": {"betas": [0.9, 0.999], "weight_decay": 0.0}},
        "schedulers": [{"SequentialLR": {"schedulers": schedule}}],
        "precision": {"max_gradient_norm": 1.0, "host": request.precision},
        "loop": {"max_steps": steps},
        "checkpoint": {"steps": max(1, -(-steps // 4))},
        "logging": {"log_steps": max(1, steps // 20)},
        "model_dir": str((request.output / "run").absolute()),
        "seed": request.seed,
    }
    folder = data.path
    fit = {
        "train_dataloader": {**loader, "data_dir": str(folder / "train"), "batch_size": batch_size, "shuffle": True},
        "val_dataloader": {**loader, "data_dir": str(folder / "val"), "batch_size": sizes["val"]},
    }
    text = yaml.safe_dump({"trainer": {"init": init, "fit": fit}}, sort_keys=False)
    text = f"# Written by `cstool finetune`; `cstool run --params {shlex.quote(str(file))}` is the same run.\n{text}"
    if file.is_file() and file.read_text(encoding="utf-8") != text:
        raise CstoolError(
            f"{file}: must be as this command writes it, it is of another one, or was changed",
            "cstool run --params with this file goes on with it as it is; another --output begins anew",
        )
    write_replacing(file, text)
