"""A request whose tokens are drawn one after the other, each by the logits, the request and the tokens before it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from cstool.inference.sampling import Changes, Choice, Chosen, Sampling
from cstool.inference.sequences import Made, TokenRequest, TokenSequence, log_probabilities


class Drawing:
    """The one sequence of a request whose tokens are drawn.

    Args:
        request: its choice is `Sampling`
    """

    def __init__(self, request: TokenRequest) -> None:
        assert isinstance(request.choice, Sampling)
        self.request, self._sampling = request, request.choice
        self.running = [TokenSequence(request, -1, list(request.tokens))]
        self._has_penalties = bool(request.frequency_penalty or request.presence_penalty)
        self._counts: Counter[int] = Counter()
        """of the tokens that followed the prompt, where there are penalties"""

    def choices(self) -> list[Choice]:
        """How the next token is chosen, and those after each of the drafts that may follow."""
        sequence, request = self.running[0], self.request
        if request.max_tokens == 0:
            return []
        counts, found = self._counts.copy(), []
        made, drafts = len(sequence.tokens) - len(request.tokens), sequence.drafts
        masks = None if request.grammar is None else request.grammar.allowed(drafts)
        if masks is not None:
            drafts = drafts[: len(masks) - 1]
        for ahead, draft in enumerate([*drafts, None]):
            plain = self._sampling.choice(request.draw_key, len(sequence.tokens) + ahead)
            changes = self._changes(counts, made + ahead)
            allowed = None if masks is None else masks[ahead].view(np.uint8)
            if changes is not None or allowed is not None or request.top is not None:
                plain = replace(plain, changes=changes, allowed=allowed, top_logprobs=request.top)
            found.append(plain)
            if draft is not None and self._has_penalties:
                counts[draft] += 1
        return found

    def _changes(self, counts: Counter[int], made: int) -> Changes | None:
        """Changes of the logits of a token, before which so many have followed the prompt."""
        request = self.request
        biases = dict(request.bias)
        if made < request.min_tokens:
            biases |= dict.fromkeys(request.ends, -np.inf)
        if not biases and not self._has_penalties:
            return None
        return Changes.of(biases, counts, request.frequency_penalty, request.presence_penalty)

    def take(self, chosen: Chosen | None, capacity: int) -> Made:
        """Go on with tokens, up to the first that is not the drafted one.

        Args:
            chosen: a token for each of `choices`; None where the prompt alone was asked for
            capacity: most tokens of the sequence
        """
        sequence, request = self.running[0], self.request
        echo = sequence.take_echo()
        if chosen is None:
            return Made(request.prompt, [], "length", echo=echo)
        tokens: list[int] = []
        reason, right = None, 0
        drafts = sequence.drafts[: len(chosen.tokens) - 1]
        for token, draft in zip(chosen.tokens.tolist(), [*drafts, None], strict=True):
            sequence.tokens.append(token)
            tokens.append(token)
            if self._has_penalties:
                self._counts[token] += 1
            if request.grammar is not None:
                request.grammar.take(token)
            reason = sequence.reason_to_end(capacity)
            right += token == draft
            if reason is not None or token != draft:
                break
        wrong, sequence.drafts = len(sequence.drafts) - right, []
        if right or wrong:
            sequence.draft_reach = 2 * sequence.draft_reach if wrong == 0 else max(1, right)
        # The keys and values of drafts that were right are in the memory; the last token is in no pass yet.
        sequence.cached = len(sequence.tokens) - 1
        logprobs = () if request.top is None else log_probabilities(chosen)[: len(tokens)]
        return Made(
            request.prompt,
            tokens,
            reason,
            logprobs=logprobs,
            echo=echo,
            accepted=right,
            rejected=wrong,
            predicted=sequence.drafts_predicted,
            reused=sequence.reused,
        )

    def cut_short(self) -> Made:
        """End it here."""
        return Made(self.request.prompt, [], "interrupted")
