"""From prompts to tokens: pass by pass, with the next tokens of all sequences and pieces of prompts side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

from cstool.inference.beams import Search
from cstool.inference.drafts import Drafts, NoDrafts
from cstool.inference.drawing import Drawing
from cstool.inference.memory import KvCache
from cstool.inference.passes import PASS_ROWS, check_finite
from cstool.inference.sampling import Chosen, Sampling, choose_tokens
from cstool.inference.sequences import Made, TokenRequest, TokenSequence
from cstool.inference.walk import Walk
from cstool.training.kernels.cached_attention import News

Stopped = Callable[[], bool]
"""asked before each pass; True ends everything"""
ECHO_ROWS = 64
"""most tokens of a prompt in a pass whose log probabilities are wanted: their logits take memory"""


class Decoder:
    """Makes the tokens of several requests side by side; others may be admitted while they are under way.

    The tokens of a request depend on its prompt, the number of that and its choice alone: not on the requests beside
    it, nor on when it came, nor on the memory, drafts or the number of threads.

    Where the pages of the memory do not suffice, requests that were admitted last give theirs back, and compute their
    keys and values again later.

    Args:
        walk: its memory has a slot for each sequence: of a search one for each beam
        uses_cache: False computes every token again for each that follows, for comparison
        rows_beside: most tokens of prompts in a pass that has next tokens of others, which wait for it
        drafts: tokens that may follow; a pass verifies several
    """

    def __init__(
        self, walk: Walk, *, uses_cache: bool = True, rows_beside: int | None = None, drafts: Drafts | None = None
    ) -> None:
        self._walk, self._uses_cache, self._rows_beside = walk, uses_cache, rows_beside
        self._drafts: Drafts = NoDrafts() if drafts is None else drafts
        memory = walk.memory
        self._paged = memory if isinstance(memory, KvCache) and memory.is_paged else None
        self._under_way: list[Drawing | Search] = []
        self.preemptions = 0
        """times that a request gave its pages back"""

    @property
    def is_busy(self) -> bool:
        """Whether any request is under way."""
        return bool(self._under_way)

    @property
    def is_reading(self) -> bool:
        """Whether any request is under way that has no token yet."""
        return any(not sequence.made for each in self._under_way for sequence in each.running)

    def admit(self, request: TokenRequest) -> None:
        """Begin a request: its first token comes with one of the next steps."""
        if isinstance(request.choice, Sampling):
            self._under_way.append(Drawing(request))
        else:
            self._under_way.append(Search(request, self._walk))

    def cancel(self, prompt: int) -> None:
        """End a request, without a word."""
        for each in [each for each in self._under_way if each.request.prompt == prompt]:
            for sequence in each.running:
                self._give_back(sequence)
            self._under_way.remove(each)

    def step(self, stopped: Stopped = lambda: False) -> list[Made]:
        """Run a pass; return the tokens that are certain now.

        Args:
            stopped: asked before; True ends all requests, by "interrupted", with the tokens that they have

        Raises:
            NonFiniteError: the logits are not finite
        """
        if stopped():
            made = [each.cut_short() for each in self._under_way]
            for each in self._under_way:
                for sequence in each.running:
                    self._give_back(sequence)
            self._under_way.clear()
            return made
        self._run(self._compose())
        ready = [each for each in self._under_way if all(sequence.logits is not None for sequence in each.running)]
        made = self._draw([each for each in ready if isinstance(each, Drawing)])
        for each in ready:
            if isinstance(each, Search):
                made += each.go_on([sequence.take_logits()[-1] for sequence in each.running])
            if not self._uses_cache:
                for sequence in each.running:
                    sequence.cached = 0
        self._under_way = [each for each in self._under_way if each.running]
        return made

    def _compose(self) -> dict[int, tuple[TokenSequence, int]]:
        """Choose the sequences of a pass, and how many of their next tokens are in it; by the id of each."""
        waiting = [sequence for each in self._under_way for sequence in each.running if sequence.logits is None]
        going_on = [sequence for sequence in waiting if sequence.goes_on]
        for sequence in going_on:
            sequence.drafts, sequence.drafts_predicted = [], False
        self._drafts.propose(going_on)
        pieces: dict[int, tuple[TokenSequence, int]] = {}
        room = PASS_ROWS
        for sequence in going_on:
            # One that came before it may have taken its pages.
            if sequence.goes_on and sequence.rows_left <= room and self._has_room(sequence, sequence.rows_left, pieces):
                pieces[id(sequence)] = sequence, sequence.rows_left
                room -= sequence.rows_left
        if pieces and self._rows_beside is not None:
            room = min(room, self._rows_beside)
        for sequence in waiting:
            if room <= 0:
                break
            if sequence.goes_on:
                continue
            if not self._begin(sequence):
                # Those that came later do not overtake it.
                break
            count = min(sequence.rows_left, room, ECHO_ROWS if sequence.wants_echo else room)
            if self._has_room(sequence, count, pieces):
                pieces[id(sequence)] = sequence, count
                room -= count
        return pieces

    def _begin(self, sequence: TokenSequence) -> bool:
        """Give a sequence a slot, with pages for all its tokens; False where there are not as many."""
        if sequence.slot >= 0:
            return True
        request, memory = sequence.request, self._walk.memory
        slot = memory.open(request.source)
        if self._paged is not None:
            found = self._paged.reuse(slot, () if sequence.wants_echo else sequence.tokens, request.adapter)
            if not self._paged.extend(slot, len(sequence.tokens)):
                memory.close(slot)
                return False
            # The last token is computed in any case: what follows it is in no memory.
            sequence.cached = min(found, len(sequence.tokens) - 1)
            sequence.reused = max(sequence.reused, min(sequence.cached, len(request.tokens)))
        sequence.slot = slot
        return True

    def _has_room(self, sequence: TokenSequence, rows: int, pieces: dict[int, tuple[TokenSequence, int]]) -> bool:
        """Make room in the memory, with pages of requests that came later where there is none."""
        while not self._walk.memory.extend(sequence.slot, sequence.cached + rows):
            each = next(each for each in self._under_way[::-1] if any(one.slot >= 0 for one in each.running))
            last = each.running[-1]
            if last is sequence:
                return False
            pieces.pop(id(last), None)
            self._give_back(last)
            self.preemptions += 1
        return True

    def _give_back(self, sequence: TokenSequence) -> None:
        if sequence.slot >= 0:
            self._walk.memory.close(sequence.slot)
        sequence.slot, sequence.cached, sequence.drafts = -1, 0, []

    def _run(self, pieces: dict[int, tuple[TokenSequence, int]]) -> None:
        """Run a pass; sequences that are at their end have the logits that follow then."""
        if not pieces:
            return
        chosen = [sequence for sequence, _ in pieces.values()]
        counts = [count for _, count in pieces.values()]
        before = [sequence.cached for sequence in chosen]
        wanted = []
        for sequence, count in pieces.values():
            sequence.cached += count
            wanted.append(min(count, sequence.cached - sequence.first_wanted))
        slots, adapters = zip(*((sequence.slot, sequence.request.adapter) for sequence in chosen), strict=True)
        if all(count == 1 == rows for count, rows in zip(counts, wanted, strict=True)):
            found = self._walk.next([sequence.tokens[-1] for sequence in chosen], slots, before, adapters)
        else:
            parts = [sequence.part(start) for sequence, start in zip(chosen, before, strict=True)]
            ids, news = np.array(list(chain.from_iterable(parts)), np.int32), News.of(slots, counts, before)
            ends = (news.starts + news.counts).tolist()
            rows = [np.arange(end - count, end) for end, count in zip(ends, wanted, strict=True) if count > 0]
            of_rows = np.concatenate(rows) if rows else np.zeros(0, np.int64)
            found = self._walk.run({self._walk.ids: ids}, news, of_rows, adapters)
        at = 0
        for sequence, count in zip(chosen, wanted, strict=True):
            if count > 0:
                self._look(sequence, found[at : at + count])
                at += count
            if self._paged is not None:
                self._paged.keep(sequence.slot, sequence.tokens, min(sequence.cached, len(sequence.tokens)))

    def _look(self, sequence: TokenSequence, logits: np.ndarray) -> None:
        """Give a sequence the logits of its last rows: for its prompt's log probabilities, for its next tokens."""
        if not np.isfinite(logits).all():
            which = f"prompt {sequence.request.prompt + 1}, token {len(sequence.tokens)}: the logits"
            check_finite(logits, which)
        if sequence.wants_echo:
            sequence.add_echo(logits, self._walk.team)
        if sequence.rows_left == 0:
            sequence.logits = logits[-1 - len(sequence.drafts) :]

    def _draw(self, drawings: Sequence[Drawing]) -> list[Made]:
        """Let each sequence go on, with the tokens of its drafts that are right and the one after them."""
        if not drawings:
            return []
        of_each = [each.choices() for each in drawings]
        rows = [each.running[0].take_logits()[: len(own)] for each, own in zip(drawings, of_each, strict=True)]
        logits = rows[0] if len(rows) == 1 else np.concatenate(rows)
        chosen = choose_tokens(logits, list(chain.from_iterable(of_each)), self._walk.team)
        made, at = [], 0
        for each, own in zip(drawings, of_each, strict=True):
            part = Chosen(*(array[at : at + len(own)] for array in chosen))
            made.append(each.take(part if own else None, self._walk.capacity))
            at += len(own)
            if made[-1].finish_reason is not None:
                self._give_back(each.running.pop())
        return made
