"""From prompts to tokens: new prompts in a few wide passes, and one token of every sequence in each pass after that."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from cstool.inference.beams import Search
from cstool.inference.sampling import Sampling, choose_tokens
from cstool.inference.sequences import Made, TokenRequest, TokenSequence
from cstool.inference.walk import PASS_ROWS, Walk, check_finite
from cstool.training.kernels.cached_attention import News

Stopped = Callable[[], bool]
"""asked before each pass; True ends everything"""


class Decoder:
    """Makes the tokens of several requests side by side; others may be admitted while they are under way.

    The tokens of a request depend on its prompt, the number of that and its choice alone: not on the requests beside
    it, nor on when it came, nor on the memory or the number of threads.

    Args:
        walk: its memory has a slot for each sequence: of a search one for each beam
        uses_cache: False computes every token again for each that follows, for comparison
    """

    def __init__(self, walk: Walk, *, uses_cache: bool = True) -> None:
        self._walk, self._uses_cache = walk, uses_cache
        self._under_way: list[_Drawing | Search] = []

    @property
    def is_busy(self) -> bool:
        """Whether any request is under way."""
        return bool(self._under_way)

    def admit(self, request: TokenRequest) -> None:
        """Begin a request: its first token comes with the next step."""
        begin = _Drawing if isinstance(request.choice, Sampling) else Search
        self._under_way.append(begin(request, self._walk))

    def step(self, stopped: Stopped = lambda: False) -> list[Made]:
        """Make the next token of all sequences; return the tokens that are certain now.

        Args:
            stopped: asked before each pass; True ends all requests, by "interrupted", with the tokens that they have

        Raises:
            NonFiniteError: the logits are not finite
        """
        running = list(chain.from_iterable(each.running for each in self._under_way))
        if not self._uses_cache:
            for sequence in running:
                sequence.cached = 0
        logits = self._next_logits(running, stopped)
        if logits is None:
            made = [each.cut_short() for each in self._under_way]
        else:
            rows = iter(logits)
            made = [one for each in self._under_way for one in each.go_on([next(rows) for _ in each.running])]
        self._under_way = [each for each in self._under_way if each.running]
        return made

    def _next_logits(self, sequences: Sequence[TokenSequence], stopped: Stopped) -> list[np.ndarray] | None:
        """Run the tokens of each sequence that are not in the memory.

        Returns:
            the logits of the last token of each, (V,) float32; None where `stopped` said so before a pass
        """
        logits: dict[int, np.ndarray] = {}
        for pieces in _pieces(sequences):
            if stopped():
                return None
            logits.update(self._pass(pieces))
        return [logits[sequence.slot] for sequence in sequences]

    def _pass(self, pieces: Sequence[tuple[TokenSequence, int]]) -> dict[int, np.ndarray]:
        """Run so many next tokens of each sequence; return the logits, by slot, of sequences that are at their end."""
        before = [sequence.cached for sequence, _ in pieces]
        for sequence, count in pieces:
            sequence.cached += count
        done = [sequence for sequence, _ in pieces if sequence.cached == len(sequence.tokens)]
        slots, adapters = zip(*((sequence.slot, sequence.request.adapter) for sequence, _ in pieces), strict=True)
        if len(done) == sum(count for _, count in pieces):
            found = self._walk.next([sequence.tokens[-1] for sequence in done], slots, before, adapters)
        else:
            parts = [
                sequence.tokens[start : sequence.cached] for (sequence, _), start in zip(pieces, before, strict=True)
            ]
            ids = np.array(list(chain.from_iterable(parts)), np.int32)
            news = News.of(slots, [count for _, count in pieces], before)
            at_end = [sequence.cached == len(sequence.tokens) for sequence, _ in pieces]
            ends = (news.starts + news.counts - 1)[at_end]
            found = self._walk.run({self._walk.ids: ids}, news, ends, adapters)
        _check_finite(done, found)
        return {sequence.slot: row for sequence, row in zip(done, found, strict=True)}


def _check_finite(sequences: Sequence[TokenSequence], logits: np.ndarray) -> None:
    if not np.isfinite(logits).all():
        for sequence, row in zip(sequences, logits, strict=True):
            check_finite(row, f"prompt {sequence.request.prompt + 1}, token {len(sequence.tokens)}: the logits")


def _pieces(sequences: Sequence[TokenSequence]) -> Iterator[list[tuple[TokenSequence, int]]]:
    """Yield for each pass sequences and the numbers of their next tokens, `PASS_ROWS` in all but the last."""
    pieces: list[tuple[TokenSequence, int]] = []
    room = PASS_ROWS
    for sequence in sequences:
        todo = len(sequence.tokens) - sequence.cached
        while todo:
            count = min(todo, room)
            pieces.append((sequence, count))
            todo, room = todo - count, room - count
            if not room:
                yield pieces
                pieces, room = [], PASS_ROWS
    if pieces:
        yield pieces


class _Drawing:
    """The one sequence of a request whose tokens are drawn."""

    def __init__(self, request: TokenRequest, walk: Walk) -> None:
        self._request, self._walk = request, walk
        self.running = [TokenSequence(request, walk.memory.open(request.source), list(request.tokens))]

    def go_on(self, logits: Sequence[np.ndarray]) -> list[Made]:
        """Draw the next token."""
        (sequence,), (row,) = self.running, logits
        assert isinstance(self._request.choice, Sampling)
        draws = self._request.prompt if self._request.draws is None else self._request.draws
        token = int(choose_tokens(row[None], [self._request.choice.choice(draws, len(sequence.tokens))]).tokens[0])
        sequence.tokens.append(token)
        if (reason := sequence.reason_to_end(self._walk.capacity)) is not None:
            self._end()
        return [Made(self._request.prompt, [token], reason)]

    def cut_short(self) -> Made:
        """End it here."""
        self._end()
        return Made(self._request.prompt, [], "interrupted")

    def _end(self) -> None:
        self._walk.memory.close(self.running.pop().slot)


def decode(
    walk: Walk, requests: Iterable[TokenRequest], *, uses_cache: bool = True, stopped: Stopped = lambda: False
) -> Iterator[list[Made]]:
    """Yield, step by step, the tokens of requests that begin together; see `Decoder`."""
    decoder = Decoder(walk, uses_cache=uses_cache)
    for request in requests:
        decoder.admit(request)
    while decoder.is_busy:
        yield decoder.step(stopped)
