"""Ask: answers of a trained encoder to texts, the verb behind `cstool run --mode infer` for encoders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cstool.foundation.errors import InferenceError
from cstool.inference.verbs.answer import opened, until_stopped

if TYPE_CHECKING:
    from cstool.foundation.progress import Progress
    from cstool.inference.encoder import EncoderRequest
    from cstool.inference.encoder_answers import EncoderAnswers
    from cstool.inference.model import InferenceModel
    from cstool.model.params import Params
    from cstool.training.data import EncoderText, EncoderTokenizer
    from cstool.training.machine.ranks.link import Link


@dataclass(frozen=True)
class EncoderPlan:
    """A request that was checked against the params of an encoder: its prompts are tokens."""

    request: EncoderRequest
    tokenizer: EncoderTokenizer
    encoded: Sequence[EncoderText]
    labels: Mapping[int, str]
    """names of classes by number, as far as they are known"""


def ask(
    trained: str | Path | Params | InferenceModel,
    prompts: str | Sequence[str],
    *,
    pairs: Sequence[str | None] | None = None,
    embed: str | None = None,
    top_k: int | None = None,
    tokenizer: str | Path | None = None,
    truncates: bool = False,
    special_tokens: bool = True,
    batch_size: int | None = None,
    lanes: int | None = None,
    progress: Literal["auto", "none"] | Progress = "auto",
) -> EncoderAnswers:
    """Ask a trained encoder about texts: tokens for masks, classes, sentences to keep, or vectors.

    An answer does not depend on the texts beside it.

    Args:
        trained: as for `open_model`, or a model that is open
        prompts: one text, or several
        pairs: for each prompt the text that comes second, or None
        embed: "mean", "first" or "pooled" for vectors, of DPR "question" or "context"; None for the task of its
            training
        top_k: tokens for each mask; None for 5
        tokenizer: a vocab.txt or a tokenizers JSON file; None for the vocabulary of the params
        truncates: cut texts that are too long, which is an error else
        special_tokens: begin and end texts with the tokens for that
        batch_size: texts that go through the model together; None for some 512 tokens
        lanes: host threads; None for one per core. Results do not depend on it
        progress: of the loading; see `open_model`

    Returns:
        An answer for each prompt, and the speed on this host; its `embeddings` are an array

    Raises:
        InferenceError: the model is no encoder, or does not fit the request
        NonFiniteError: the model does not give finite numbers
        CstoolError: any other error that the user can act on
    """
    from cstool.inference.encoder import ask as ask_model

    with opened(trained, lanes, progress) as model:
        plan = plan_texts(
            model.params,
            (prompts,) if isinstance(prompts, str) else prompts,
            None if tokenizer is None else str(tokenizer),
            pairs=tuple(pairs or ()),
            embed=embed,
            top_k=top_k,
            truncates=truncates,
            special_tokens=special_tokens,
            batch_size=batch_size,
        )
        return ask_model(model, plan.tokenizer, plan.request, labels=plan.labels, encoded=plan.encoded)


def is_encoder(params: Params) -> bool:
    """Whether the model of these params is an encoder, or two, or a decoder that tells classes as an encoder does."""
    from cstool.model.params import DecoderClassifierParams, DprParams, EncoderParams

    return isinstance(params.model, EncoderParams | DprParams | DecoderClassifierParams)


def fills_in(params: Params) -> bool:
    """Whether the model of these params fills in masks."""
    from cstool.model.params import BertParams

    return isinstance(params.model, BertParams)


def plan_texts(params: Params, prompts: Sequence[str], tokenizer: str | None = None, **asked: Any) -> EncoderPlan:
    """Check a request to an encoder, and encode its prompts; nothing of the model is read.

    Args:
        params: of the model
        prompts: texts
        tokenizer: a vocab.txt or a tokenizers JSON file; None for the vocabulary of the params
        asked: as of `cstool.inference.encoder.EncoderRequest`; None for the default

    Raises:
        InferenceError: the model is no encoder, or does not fit the request, or no vocabulary is named
        DataError: the vocabulary cannot be loaded
    """
    from cstool.inference.encoder import EncoderRequest, encode_texts, encoder_of

    model = encoder_of(params.model)
    pairs = asked.get("pairs") or ()
    if pairs and len(pairs) != len(prompts):
        raise InferenceError(f"pairs: must be as many as prompts ({len(prompts)}), got {len(pairs)}")
    request = EncoderRequest(tuple(prompts), **{name: value for name, value in asked.items() if value is not None})
    loaded = _tokenizer(params, tokenizer)
    return EncoderPlan(request, loaded, encode_texts(model, loaded, request), _labels(params))


def _loaders(params: Params) -> list[Any]:
    loaders = (params.train_dataloader, *params.val_dataloaders, *params.eval_dataloaders, *params.eval_all_dataloaders)
    return [loader for loader in loaders if loader is not None]


def _tokenizer(params: Params, named: str | None) -> EncoderTokenizer:
    """Load the named vocabulary, or the one of the data, of the model section, or beside a checkpoint."""
    from cstool.model.params import DecoderClassifierParams
    from cstool.training.data import EncoderTokenizer, tokenizer_beside

    loaders, by_template = _loaders(params), isinstance(params.model, DecoderClassifierParams)
    do_lower = any(getattr(loader, "do_lower", False) for loader in loaders)
    if named is not None:
        return EncoderTokenizer(Path(named), do_lower=do_lower, by_template=by_template)
    for section in (*loaders, params.model):
        if (file := getattr(section, "vocab_file", None)) is not None:
            of_file = getattr(section, "do_lower", do_lower)
            return EncoderTokenizer(file.now, do_lower=of_file, by_template=by_template)
    if (beside := tokenizer_beside(params.path)).is_file():
        return EncoderTokenizer(beside, by_template=by_template)
    raise InferenceError(
        "--tokenizer: must be given where the params have no vocab_file, and they have none",
        "the vocab.txt or the tokenizer.json of the training data",
    )


def _labels(params: Params) -> dict[int, str]:
    """Names of the classes of a model by their numbers, as far as its data name them."""
    from cstool.training.data import label_names

    for section in (*_loaders(params), params.model):
        file = getattr(section, "label_vocab_file", None)
        processor = getattr(section, "data_processor", None)
        if file is not None and file.now.exists():
            return label_names(file.now)
        if processor in ("MNLIDataProcessor", "SST2DataProcessor"):
            return label_names(processor)
    return {}


def ask_until_stopped(model: InferenceModel, plan: EncoderPlan, *, link: Link) -> tuple[EncoderAnswers, str | None]:
    """Ask an open encoder until a signal stops it, here or at another rank; its name comes with the answers."""
    from cstool.inference.encoder import ask as ask_model

    def work(stopped: Callable[[], bool]) -> EncoderAnswers:
        return ask_model(model, plan.tokenizer, plan.request, labels=plan.labels, encoded=plan.encoded, stopped=stopped)

    return until_stopped(work, "the texts under way are answered", link)
