"""Load on a server: requests of random prompts, side by side or one after the other, and the times of their answers."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import count, islice, pairwise
from random import Random
from typing import Any, Literal

from cstool.foundation.errors import AnswerError
from cstool.serving.client import Client

FIRST_TOKEN, LEAST_VOCABULARY = 3, 256
"""Tokens before the first are special in many vocabularies; hardly one has fewer than the least."""
SHARES = {"median": 0.5, "p90": 0.9, "p99": 0.99}
MOST_THREADS = 1024
_WORDS = "the of and to in is you that it he was for on are as with his they at be this have from or one".split()

Form = Literal["tokens", "texts", "chats"]
FORMS: tuple[Form, ...] = ("tokens", "texts", "chats")
"""forms of prompts, the most exact first; a server need not take all"""


@dataclass(frozen=True)
class Timed:
    """An answer.

    Args:
        pieces_s: times of its pieces of text, from when its request was due [s]
        whole_s: time of its end [s]
        tokens: of it, as the server counts; where it does not, pieces of text
        prompt_tokens: of its prompt; None where the server does not count
    """

    pieces_s: Sequence[float]
    whole_s: float
    tokens: int
    prompt_tokens: int | None

    @property
    def gaps_s(self) -> list[float]:
        """Times between two pieces of text [s]; a piece is a token where the server sends each as it comes."""
        return [later - before for before, later in pairwise(self.pieces_s)]

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens after the first, over their time; None of fewer than two pieces."""
        spent = self.pieces_s[-1] - self.pieces_s[0] if self.pieces_s else 0.0
        return (self.tokens - 1) / spent if spent > 0 else None


@dataclass(frozen=True)
class Round:
    """Measurements at one load.

    Args:
        concurrency: requests side by side; None in an open loop
        rate: at which requests came [1/s]; None in a closed loop
        answers: all that are whole
        errors: number of times that each came
        seconds: from the first request to the last answer
    """

    concurrency: int | None
    rate: float | None
    answers: Sequence[Timed]
    errors: Mapping[str, int]
    seconds: float

    @property
    def first_token_s(self) -> dict[str, float]:
        """Times to the first text [s], by `SHARES`; {} where there are none."""
        return shares([answer.pieces_s[0] for answer in self.answers if answer.pieces_s])

    @property
    def between_tokens_s(self) -> dict[str, float]:
        """Times between two pieces of text [s], by `SHARES`; {} where there are none."""
        return shares([gap for answer in self.answers for gap in answer.gaps_s])

    @property
    def whole_s(self) -> dict[str, float]:
        """Times to the end of an answer [s], by `SHARES`; {} where there are none."""
        return shares([answer.whole_s for answer in self.answers])

    @property
    def tokens_per_s_each(self) -> float | None:
        """Tokens of an answer after its first, over their time: the median; None where there are none."""
        return shares(rate for answer in self.answers if (rate := answer.tokens_per_s) is not None).get("median")

    @property
    def tokens_per_s(self) -> float:
        """Tokens of all answers, over the time of the round."""
        return sum(answer.tokens for answer in self.answers) / self.seconds

    @property
    def requests_per_s(self) -> float:
        """Answers over the time of the round."""
        return len(self.answers) / self.seconds

    @property
    def users(self) -> int:
        """Requests under way at a time, in the mean of an open loop."""
        if self.concurrency is not None:
            return self.concurrency
        return max(1, round(sum(answer.whole_s for answer in self.answers) / self.seconds))


def shares(values: Iterable[float]) -> dict[str, float]:
    """Return the least value that is not below a share of all, by the names of `SHARES`; {} of no values.

    >>> shares([3.0, 1.0, 2.0])
    {'median': 2.0, 'p90': 3.0, 'p99': 3.0}
    """
    ordered = sorted(values)
    return {name: ordered[math.ceil(share * len(ordered)) - 1] for name, share in SHARES.items()} if ordered else {}


@dataclass(frozen=True)
class Prompts:
    """Random prompts: the same for the same seed and number.

    Args:
        tokens: of each
        shared: number of first tokens that all prompts share
        seed: of the draws
        vocab_size: token numbers are below it
    """

    tokens: int
    shared: int
    seed: int
    vocab_size: int = LEAST_VOCABULARY

    def ids(self, number: int) -> list[int]:
        """Return a prompt as tokens."""
        return self._drawn(number, range(min(FIRST_TOKEN, self.vocab_size - 1), self.vocab_size), 1.0)

    def text(self, number: int, words_per_token: float = 1.0) -> str:
        """Return a prompt as a text."""
        return " ".join(self._drawn(number, _WORDS, words_per_token))

    def _drawn(self, number: int, among: Sequence[Any], each: float) -> list[Any]:
        of_all, of_one = Random(f"{self.seed} shared"), Random(f"{self.seed} {number}")
        whole, shared = max(1, round(self.tokens * each)), round(self.shared * each)
        return of_all.choices(among, k=shared) + of_one.choices(among, k=whole - shared)


@dataclass
class Load:
    """Asks a server; each prompt is a new one.

    Args:
        client: of the server
        prompts: of the requests
        fields: of all requests
        form: of the prompts; `find_form` finds the one that the server takes
    """

    client: Client
    prompts: Prompts
    fields: Mapping[str, Any]
    form: Form = "tokens"
    _words_per_token: float = 1.0
    _numbers: Any = field(default_factory=count)
    _is_over: threading.Event = field(default_factory=threading.Event)

    def find_form(self) -> None:
        """Find the first form of prompts that the server takes.

        Raises:
            AnswerError: it takes none; it is the error of the first
        """
        errors = []
        for self.form in FORMS:
            try:
                if self.form != "tokens":
                    self._words_per_token = self._measured_words()
                self.ask(next(self._numbers))
                return
            except AnswerError as error:
                errors.append(error)
        raise errors[0]

    def _measured_words(self) -> float:
        """Words of a text for each of its tokens, of the difference between a short text and a longer one."""
        words, tokens = [], []
        for length in (4, 12):
            number, self._words_per_token = next(self._numbers), length / self.prompts.tokens
            words.append(len(self.prompts.text(number, self._words_per_token).split()))
            tokens.append(self.ask(number).prompt_tokens or 0)
        return (words[1] - words[0]) / (tokens[1] - tokens[0]) if tokens[1] > tokens[0] else 1.0

    def ask(self, number: int, due: float | None = None) -> Timed:
        """Return the times of an answer.

        Args:
            number: of the prompt
            due: when it was to be asked, on the clock `time.perf_counter`; None for now

        Raises:
            AnswerError: there is none, or it is not whole
        """
        path, document = self._document(number)
        due = time.perf_counter() if due is None else due
        pieces: list[float] = []
        usage: Mapping[str, Any] = {}
        for event in self.client.events(path, document):
            now = time.perf_counter() - due
            if self._is_over.is_set():
                raise AnswerError("stopped")
            if any(map(_has_token, event.get("choices") or ())):
                pieces.append(now)
            usage = event.get("usage") or usage
        whole = time.perf_counter() - due
        return Timed(pieces, whole, usage.get("completion_tokens", len(pieces)), usage.get("prompt_tokens"))

    def _document(self, number: int) -> tuple[str, dict[str, Any]]:
        if self.form == "tokens":
            return "/v1/completions", {**self.fields, "prompt": self.prompts.ids(number)}
        text = self.prompts.text(number, self._words_per_token)
        if self.form == "texts":
            return "/v1/completions", {**self.fields, "prompt": text}
        return "/v1/chat/completions", {**self.fields, "messages": [{"role": "user", "content": text}]}

    def closed(self, concurrency: int, requests: int, tell: Callable[[int], object]) -> Round:
        """Measure with so many requests side by side: each that ends makes room for the next.

        Args:
            tell: takes the number of answers so far
        """
        dues = [None] * requests
        return self._round(concurrency, None, concurrency, dues, tell)

    def open(self, rate: float, requests: int, tell: Callable[[int], object]) -> Round:
        """Measure with requests that come at random times, of so many a second, whether others have ended or not.

        Args:
            tell: takes the number of answers so far
        """
        draws, due, dues = Random(f"{self.prompts.seed} {rate} arrivals"), time.perf_counter(), []
        for _ in range(requests):
            dues.append(due)
            due += draws.expovariate(rate)
        return self._round(None, rate, min(requests, MOST_THREADS), dues, tell)

    def _round(
        self,
        concurrency: int | None,
        rate: float | None,
        threads: int,
        dues: Sequence[float | None],
        tell: Callable[[int], object],
    ) -> Round:
        answers, errors = [], Counter[str]()
        began, futures = time.perf_counter(), list[Future[Timed]]()
        pool = ThreadPoolExecutor(threads)
        try:
            for number, due in zip(islice(self._numbers, len(dues)), dues, strict=True):
                if due is not None:
                    time.sleep(max(0.0, due - time.perf_counter()))
                futures.append(pool.submit(self.ask, number, due))
            for done, future in enumerate(as_completed(futures), start=1):
                try:
                    answers.append(future.result())
                except AnswerError as error:
                    errors[error.message] += 1
                tell(done)
        except BaseException:
            self._is_over.set()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        return Round(concurrency, rate, answers, errors, time.perf_counter() - began)


def _has_token(choice: Mapping[str, Any]) -> bool:
    """Whether a choice of an event has a token: in chats text or thoughts, elsewhere any text before the end."""
    delta = choice.get("delta")
    if delta is None:
        return bool(choice.get("text")) or choice.get("finish_reason") is None
    return any(delta.get(name) for name in ("content", "reasoning", "reasoning_content"))
