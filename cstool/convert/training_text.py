"""The params file beside a converted checkpoint: its model, and the other keys for training, with comments."""

import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import yaml

from cstool.convert.described import Described
from cstool.foundation.errors import DataError
from cstool.model.params import DecoderClassifierParams, DecoderParams, EncoderDecoderParams, VisionTransformerParams
from cstool.training.data import load_tokenizer

_LONGEST = 2048
"""most tokens of a sample that is suggested; a model may have been made for far longer texts than a host trains with"""
_OPTIMIZER = """\
    optimizer:
      AdamW:
        betas: [0.9, 0.95]
        weight_decay: 0.1            # not applied to biases and norms
    schedulers:
    - CosineDecayLR:                 # far below what a model begins with: this one has learned already
        initial_learning_rate: 2.0e-5
        end_learning_rate: 2.0e-6
        total_iters: 1000
    precision:
      max_gradient_norm: 1.0
    loop:
      max_steps: 1000
    checkpoint:
      steps: 200
    seed: 1
  fit:
    ckpt_path: {checkpoint}  # without this line a run goes on from the latest checkpoint in model_dir
"""
_TEXTS = """\
    train_dataloader:
      data_processor: GptHDF5MapDataProcessor
      data_dir: {train}  # relative to this file, else to the working directory
      batch_size: 8
      shuffle: true
      shuffle_seed: 1
    val_dataloader:
      data_processor: GptHDF5MapDataProcessor
      data_dir: {val}
      batch_size: 8
"""
_PAGES: Mapping[type, str] = {
    VisionTransformerParams: "model/vision",
    EncoderDecoderParams: "model/encoder_decoders",
    DecoderClassifierParams: "training/classifiers",
}
"""pages on models that read no plain texts; others are encoders"""


def training_text(described: Described, checkpoint: Path, tokenizer: Path | None) -> str:
    """Return a params file for a converted checkpoint: the model that it has, an optimizer, and its data to be.

    Args:
        described: the model; of its document the model section counts
        checkpoint: that the file lies beside
        tokenizer: file beside it; None without one
    """
    section, kind = described.document["trainer"]["init"]["model"], described.model
    model = yaml.safe_dump({"trainer": {"init": {"model": section}}}, sort_keys=False)
    head = [f"The model of {checkpoint.name}, and what training it further takes."]
    rest = _OPTIMIZER.format(checkpoint=json.dumps(checkpoint.name))
    if isinstance(kind, DecoderParams) and kind.makes_text:
        data, length = f"{checkpoint.stem}_data", min(kind.max_position_embeddings or _LONGEST, _LONGEST)
        reads = f"{'FILE' if tokenizer is None else shlex.quote(tokenizer.name)}{_begin_flag(tokenizer)}"
        made = f"--output {shlex.quote(data)} --sequence_length {length} --tokenizer {reads}"
        head += [
            "First make the data of your TEXTS, with the tokenizer that the model was trained with:",
            f"  cstool data prepare text TEXTS {made}",
        ]
        rest += _TEXTS.format(train=json.dumps(f"{data}/train"), val=json.dumps(f"{data}/val"))
    else:
        page = next((page for other, page in _PAGES.items() if isinstance(kind, other)), "model/encoders")
        head += [f"Its data are to be named: train_dataloader below `fit`, as docs/{page}.md describes it. Then:"]
    head += [f"  cstool run --params {shlex.quote(checkpoint.with_suffix('.yaml').name)}"]
    return "".join(f"# {' '.join(line.splitlines())}\n" for line in head) + model + rest


def _begin_flag(tokenizer: Path | None) -> str:
    """A model whose tokenizer begins texts was trained with such texts."""
    with suppress(DataError):
        if tokenizer is not None and load_tokenizer(tokenizer).begin:
            return " --begin_texts"
    return ""
