"""Answers of an encoder to texts: tokens for the masks in them, classes, sentences to keep, or vectors.

Texts go through the model side by side, without padding: an answer does not depend on the other texts, to the bit.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from cstool.foundation.errors import InferenceError
from cstool.inference.encoder_answers import (
    Choice,
    Classified,
    Embedded,
    EncoderAnswer,
    EncoderAnswers,
    EncoderSpeed,
    Filled,
    Sentence,
    Summarized,
    Tagged,
    Word,
)
from cstool.inference.model import InferenceModel
from cstool.inference.passes import check_finite, whole_passes
from cstool.inference.walk import Walk
from cstool.model.graphs import Answer, Side, answering_graph, build_graph, embedding_graph
from cstool.model.ir import Graph
from cstool.model.params import (
    BertClassifierParams,
    BertParams,
    BertSummarizationParams,
    BertTokenClassifierParams,
    DecoderClassifierParams,
    DecoderParams,
    DprEncoderParams,
    DprParams,
    EncoderParams,
    ModelParams,
)
from cstool.training.data import EncoderText, EncoderTokenizer
from cstool.training.kernels.cached_attention import News

TOP_K = 5
"""default number of tokens for a mask"""
EMBEDDINGS = ("mean", "first", "pooled")
"""the mean of the vectors of all tokens, the vector of the first token, and the output of a model's pooling layer"""
SIDES: tuple[Side, ...] = get_args(Side)
"""encoder of DPR that makes the vector of a text: the one of questions, or of contexts"""
AskedParams = EncoderParams | DprParams | DecoderClassifierParams
"""the model section of an encoder, or of two, or of a decoder that tells classes"""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class EncoderRequest:
    """A request to an encoder.

    Args:
        prompts: texts
        pairs: for each prompt the text that comes second, or None
        embed: one of `EMBEDDINGS`, or of `SIDES`, for vectors; None for the task that the model was trained for
        top_k: tokens for each mask
        truncates: whether texts that are too long are cut; else that is an error
        special_tokens: whether texts begin and end with the tokens for that
        batch_size: texts that go through the model together; None for some 512 tokens

    Raises:
        InferenceError: something of it cannot be
    """

    prompts: tuple[str, ...]
    pairs: tuple[str | None, ...] = ()
    embed: str | None = None
    top_k: int = TOP_K
    truncates: bool = False
    special_tokens: bool = True
    batch_size: int | None = None

    def __post_init__(self) -> None:
        for name in ("top_k", "batch_size"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise InferenceError(f"{name}: must be at least 1, got {value}")
        if self.embed is not None and self.embed not in (known := (*EMBEDDINGS, *SIDES)):
            raise InferenceError(f"embed: must be one of {', '.join(known)}, got {self.embed}")

    def second(self, number: int) -> str | None:
        """The second text of a prompt."""
        return self.pairs[number] if self.pairs else None


def encoder_of(model: ModelParams) -> AskedParams:
    """The model section of params, where it is of an encoder, or two; else raise InferenceError."""
    if not isinstance(model, AskedParams):
        hint = "a prompt alone is gone on from" if isinstance(model, DecoderParams) else None
        raise InferenceError(f"model: must be an encoder, got {model.name}", hint)
    return model


def encode_texts(asked: AskedParams, tokenizer: EncoderTokenizer, request: EncoderRequest) -> list[EncoderText]:
    """Return the tokens of each prompt.

    Raises:
        InferenceError: a prompt is empty, too long, has no mask to fill in, or a second text where there can be none;
            or such a vector cannot be had of this model
    """
    if isinstance(asked, DecoderClassifierParams) and request.embed is not None:
        raise InferenceError(
            f"embed: must be left out for {asked.name}, which tells classes alone, got {request.embed}"
        )
    kinds = SIDES if isinstance(asked, DprParams) else EMBEDDINGS
    if request.embed not in kinds and (request.embed is not None or kinds is SIDES):
        got = "got none" if request.embed is None else f"got {request.embed}"
        *others, last = kinds
        raise InferenceError(
            f"embed: must be {', '.join(others)} or {last} for {asked.name}, {got}",
            "it has an encoder for each, and their vectors are what it answers" if kinds is SIDES else None,
        )
    model = _reader(asked, request.embed)
    if tokenizer.vocab_size > model.vocab_size:
        raise InferenceError(
            f"{tokenizer.name}: must have at most the model's vocab_size ({model.vocab_size:,}) tokens, got "
            f"{tokenizer.vocab_size:,}",
            "--tokenizer names that of the training data",
        )
    if request.embed == "pooled" and not _has_pooler(model):
        raise InferenceError(
            f"embed: must be mean or first for {asked.name}, which has no pooling layer, got pooled",
        )
    return [_encode(model, asked.name, tokenizer, request, number) for number in range(len(request.prompts))]


def _reader(asked: AskedParams, embed: str | None) -> EncoderParams | DecoderClassifierParams:
    """The model that reads the texts."""
    if isinstance(asked, DprParams):
        return asked.questions if embed == "question" else asked.contexts
    return asked


def _has_pooler(model: EncoderParams | DecoderClassifierParams) -> bool:
    return isinstance(model, BertClassifierParams) or (isinstance(model, BertParams) and not model.disable_nsp)


def _encode(
    model: EncoderParams | DecoderClassifierParams,
    name: str,
    tokenizer: EncoderTokenizer,
    request: EncoderRequest,
    number: int,
) -> EncoderText:
    prompt, pair = request.prompts[number], request.second(number)
    which = f"prompt {number + 1}" if len(request.prompts) > 1 else "prompt"
    takes_pairs = isinstance(model, BertParams | BertClassifierParams | DprEncoderParams) and model.segments != 1
    if pair is not None and not takes_pairs and not isinstance(model, DecoderClassifierParams):
        raise InferenceError(f"{which}: must be one text for {name}, got a pair")
    context = model.max_position_embeddings
    most = context if request.truncates else None
    summarizes = isinstance(model, BertSummarizationParams) and request.embed is None
    if summarizes:
        found = tokenizer.encode_sentences(prompt, most=most)
    else:
        found = tokenizer.encode(prompt, pair, special_tokens=request.special_tokens, most=most)
    texts = set(found.tokens) - set(tokenizer.special_ids)
    if not texts and not found.masked:
        raise InferenceError(f"{which}: must have at least one token of text, got {prompt!r:.60}, which has none")
    if len(found.tokens) > context:
        raise InferenceError(
            f"{which}: must have at most the {context:,} tokens of the model, got {len(found.tokens):,}",
            "--truncate_prompt takes its first ones",
        )
    if isinstance(model, BertParams) and request.embed is None and not found.masked:
        if tokenizer.mask_token is None:
            raise InferenceError(f"{tokenizer.name}: must have a token for masks, such as [MASK], it has none")
        raise InferenceError(
            f"{which}: must have {tokenizer.mask_token} where a token is to be filled in, got {prompt!r:.60}",
            "--embed mean gives the vector of a text",
        )
    if isinstance(model, BertTokenClassifierParams) and request.embed is None and not found.words:
        raise InferenceError(f"{which}: must have at least one word, got {prompt!r:.60}")
    return found


def ask(
    model: InferenceModel,
    tokenizer: EncoderTokenizer,
    request: EncoderRequest,
    *,
    labels: Mapping[int, str] | None = None,
    encoded: Sequence[EncoderText] | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> EncoderAnswers:
    """Answers of an encoder to texts.

    Args:
        model: an encoder
        tokenizer: of the model's training data
        request: texts and options
        labels: names of classes by number, as far as they are known; others are called by their number
        encoded: of `encode_texts`, where that was done before
        stopped: asked after each pass; True ends everything, with the answers so far

    Raises:
        InferenceError: a text does not fit the model
        NonFiniteError: the model does not give finite numbers
    """
    params = encoder_of(model.params.model)
    texts = encode_texts(params, tokenizer, request) if encoded is None else encoded
    began = time.perf_counter()
    asking = _Asking(model, params, tokenizer, request, labels or {}, texts)
    answers = []
    for numbers in whole_passes([len(text.tokens) for text in texts], request.batch_size):
        answers += asking.answers(numbers)
        if stopped():
            break
    seconds, stream = time.perf_counter() - began, model.stream
    tokens = sum(len(text.tokens) for text in texts[: len(answers)])
    passes = sum(walk.passes for walk in asking.walks.values())
    kept = "resident" if stream.is_resident else "streamed"
    speed = EncoderSpeed(
        len(answers),
        tokens,
        passes,
        seconds,
        tokens / max(seconds, 1e-9),
        stream.streamed_bytes,
        kept,
        model.precision,
        stream.nodes,
    )
    return EncoderAnswers(answers, speed)


def _graph_of(params: AskedParams, answer: Answer | Side) -> Graph:
    """The part of a model that an answer takes."""
    if answer == "question" or answer == "context":
        assert isinstance(params, DprParams)
        return embedding_graph(params, answer)
    if isinstance(params, DecoderClassifierParams):
        return build_graph(params, 1)
    assert isinstance(params, EncoderParams)
    return answering_graph(params, answer)


class _Asking:
    """Runs passes over some texts at a time, and turns their outputs into answers."""

    def __init__(
        self,
        model: InferenceModel,
        params: AskedParams,
        tokenizer: EncoderTokenizer,
        request: EncoderRequest,
        labels: Mapping[int, str],
        texts: Sequence[EncoderText],
    ) -> None:
        self.model, self.params, self.tokenizer, self.request = model, params, tokenizer, request
        self.labels, self.texts = labels, texts
        self.walks: dict[Answer | Side, Walk] = {}
        lengths = [len(text.tokens) for text in texts]
        self._capacity = max(lengths)
        self._most = max(map(len, whole_passes(lengths, request.batch_size)))
        model.sequences_that_fit(self._most * self._capacity)

    def answers(self, numbers: Sequence[int]) -> list[EncoderAnswer]:
        """Answer the texts of one pass."""
        if self.request.embed is not None:
            return self._embedded(numbers)
        texts = [self.texts[number] for number in numbers]
        if isinstance(self.params, BertParams):
            wanted, make = [text.masked for text in texts], self._filled(numbers)
        elif isinstance(self.params, BertClassifierParams):
            wanted, make = [[0] for _ in texts], self._classified
        elif isinstance(self.params, DecoderClassifierParams):
            wanted, make = [[len(text.tokens) - 1] for text in texts], self._classified
        elif isinstance(self.params, BertTokenClassifierParams):
            wanted, make = [[place for _, place in text.words] for text in texts], self._tagged
        else:
            wanted, make = [[place for _, place in text.sentences] for text in texts], self._summarized
        return [make(*found) for found in zip(numbers, self._shares("tokens", numbers, wanted), strict=True)]

    def _filled(self, numbers: Sequence[int]) -> Callable[[int, list[Array]], EncoderAnswer]:
        follows: dict[int, float] = {}
        if isinstance(self.params, BertParams) and not self.params.disable_nsp:
            pairs = [number for number in numbers if self.request.second(number) is not None]
            if pairs:
                shares = self._shares("pairs", pairs, [[0]] * len(pairs))
                follows = {number: float(share[0][0]) for number, share in zip(pairs, shares, strict=True)}

        def fill(number: int, shares: list[Array]) -> EncoderAnswer:
            prompt, masks = self.request.prompts[number], [self._likeliest(row) for row in shares]
            text = self._with_tokens(prompt, masks)
            return Filled(prompt, self.request.second(number), masks, text, follows.get(number))

        return fill

    def _likeliest(self, shares: Array) -> list[Choice]:
        """Return the likeliest of the tokens that the tokenizer has, of equals the first."""
        order = np.argsort(-shares[: self.tokenizer.vocab_size], kind="stable")[: self.request.top_k].tolist()
        return [Choice(self.tokenizer.text_of(token), token, float(shares[token])) for token in order]

    def _with_tokens(self, prompt: str, masks: Sequence[Sequence[Choice]]) -> str:
        assert self.tokenizer.mask_token is not None
        first, *rest = prompt.split(self.tokenizer.mask_token)
        for choices, after in zip(masks, rest, strict=False):
            token = choices[0].token
            if token.startswith("##"):
                first, token = first.rstrip(), token[2:]
            # A token that has its own space needs no space from the prompt.
            first += (token.lstrip() if not first or first[-1].isspace() else token) + after
        return first

    def _classified(self, number: int, shares: list[Array]) -> EncoderAnswer:
        named = {self._label(k): float(share) for k, share in enumerate(shares[0])}
        label = self._label(int(shares[0].argmax()))
        return Classified(self.request.prompts[number], self.request.second(number), label, named)

    def _tagged(self, number: int, shares: list[Array]) -> EncoderAnswer:
        words = zip(self.texts[number].words, shares, strict=True)
        tagged = [Word(word, self._label(int(row.argmax())), float(row.max())) for (word, _), row in words]
        return Tagged(self.request.prompts[number], tagged)

    def _summarized(self, number: int, shares: list[Array]) -> EncoderAnswer:
        pairs = zip(self.texts[number].sentences, shares, strict=True)
        sentences = [Sentence(sentence, bool(row.argmax() == 1), float(row[1])) for (sentence, _), row in pairs]
        summary = " ".join(each.sentence for each in sentences if each.is_chosen)
        return Summarized(self.request.prompts[number], sentences, summary)

    def _embedded(self, numbers: Sequence[int]) -> list[EncoderAnswer]:
        how = self.request.embed
        answer: Answer | Side = "pooled" if how == "pooled" else "encoded"
        if isinstance(self.params, DprParams):
            answer, how = "question" if how == "question" else "context", self.params.pooler_type
        walk, inputs, news = self._pass(answer, numbers)
        states = walk.states(inputs, news)
        found: list[EncoderAnswer] = []
        for number, start, count in zip(numbers, news.starts.tolist(), news.counts.tolist(), strict=True):
            rows = states[start : start + (count if how == "mean" else 1)]
            vector = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
            check_finite(vector, f"prompt {number + 1}: the answer")
            found.append(Embedded(self.request.prompts[number], self.request.second(number), vector.tolist()))
        return found

    def _shares(self, answer: Answer, numbers: Sequence[int], wanted: Sequence[Sequence[int]]) -> Iterator[list[Array]]:
        """Yield for each text the probabilities at the wanted places, (classes,) float64 each."""
        walk, inputs, news = self._pass(answer, numbers)
        rows = [start + place for start, places in zip(news.starts.tolist(), wanted, strict=True) for place in places]
        logits = iter(walk.run(inputs, news, np.array(rows, np.int64)))
        for number, places in zip(numbers, wanted, strict=True):
            shares = []
            for _ in places:
                row = next(logits)
                check_finite(row, f"prompt {number + 1}: the answer")
                exact = row.astype(np.float64)
                exact = np.exp(exact - exact.max())
                shares.append(exact / exact.sum())
            yield shares

    def _pass(self, answer: Answer | Side, numbers: Sequence[int]) -> tuple[Walk, dict[str, Array], News]:
        """Return the walk for some texts, with inputs and rows of a pass."""
        if answer not in self.walks:
            graph = _graph_of(self.params, answer)
            self.walks[answer] = self.model.walk(self._most, self._capacity, graph)
        walk, texts = self.walks[answer], [self.texts[number] for number in numbers]
        news = News.of(range(len(texts)), [len(text.tokens) for text in texts])
        rows = int(news.counts.sum())
        inputs: dict[str, Array] = {tensor.name: np.zeros(rows, tensor.dtype) for tensor in walk.graph.inputs}
        inputs["input_ids"] = np.concatenate([text.tokens for text in texts]).astype(np.int32)
        if "attention_mask" in inputs:
            inputs["attention_mask"][:] = 1
        if "token_type_ids" in inputs:
            inputs["token_type_ids"] = np.concatenate([text.segments for text in texts]).astype(np.int32)
        return walk, inputs, news

    def _label(self, number: int) -> str:
        return self.labels.get(number, str(number))
