"""Conversations to tokens that are learned, or not.

A token is learned if any of its characters is in a learned region, as in the package transformers; one that has others,
too, stands across a border, and is counted.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from cstool.foundation.errors import DataError
from cstool.training.data.chat_regions import InexactRegions, Region, Rendered, leaves_out, rendered
from cstool.training.data.chat_templates import CSTOOL, PLAIN, ChatTemplate, SpecialTokens
from cstool.training.data.conversations import Conversation, Notes, prompt_of
from cstool.training.data.dataset import Array
from cstool.training.data.tokenizer import ByteTokenizer, FileTokenizer, begun

Truncate = Literal["drop", "keep_start", "keep_end"]
_NOWHERE = (-1, -1)
"""characters of a token that stands for none"""


@dataclass(frozen=True)
class Sample:
    """The tokens of a conversation.

    Args:
        tokens: (T,) int32
        learned: (T,) bool
    """

    tokens: Array
    learned: Array


@dataclass(frozen=True)
class ConversationTokens:
    """The way from conversations to tokens.

    Args:
        tokenizer: of the data set
        special: its special tokens
        template: for all conversations; None where pairs of texts are joined
        usual: then for others; None to refuse them
        separator: between the texts of such a pair
        most: tokens of a sample
        truncate: for longer ones: left out, or cut; first the user's messages, the first of them first, lose their ends
            (`keep_start`) or begins (`keep_end`), then the sample its end
        notes: of unusual conversations
        used: the templates used so far by their places; None for none
    """

    tokenizer: ByteTokenizer | FileTokenizer
    special: SpecialTokens
    template: ChatTemplate | None
    usual: ChatTemplate | None
    separator: str
    most: int
    truncate: Truncate
    notes: Notes
    used: dict[str | None, ChatTemplate | None] = field(default_factory=dict)

    def sample(self, conversation: Conversation) -> Sample | None:
        """Return the tokens of a conversation; None if it is left out, which is noted.

        Raises:
            DataError: the template fails, or a character has no token
            InexactRegions: the template does not mark the assistant's text, and it cannot be found
        """
        where = conversation.record.where
        template = self.template or (None if conversation.is_pair else self.usual)
        if template is None and not conversation.is_pair:
            raise DataError(
                f"{where}: messages need a template, got --chat_template {PLAIN}",
                f"leave it out, or give {CSTOOL} or a file",
            )
        text = self._joined(conversation) if template is None else self._rendered(conversation, template)
        self.used[None if template is None else template.told] = template
        try:
            tokens, spans = self.tokenizer.encode_spans(text.text)
        except DataError as error:
            raise DataError(f"{where}: {error.message}", error.hint) from None
        before: list[int] = []
        end: list[int] = []
        if template is None:
            whole = begun(self.tokenizer.begin, tokens)
            before = whole[: len(whole) - len(tokens)]
            end = [] if self.special.end is None else [self.special.end]
        ids = np.array([*before, *tokens, *end], np.int32)
        places = np.array([*[_NOWHERE] * len(before), *spans, *[_NOWHERE] * len(end)], np.int64).reshape(-1, 2)
        learned, across = learned_tokens(places, text.regions)
        learned[len(ids) - len(end) :] = True
        # What follows the last learned token changes no loss.
        used = int(np.flatnonzero(learned)[-1]) + 1 if learned.any() else len(ids)
        ids, places, learned = ids[:used], places[:used], learned[:used]
        if across:
            self.notes.add("across", where)
        begin = self.tokenizer.begin
        if len(ids) > 1 and ids[0] == ids[1] == self.special.begin:
            self.notes.add("twice", where)
        elif begin and ids[: len(begin)].tolist() != [*begin]:
            self.notes.add("unbegun", where)
        if len(ids) > self.most:
            if self.truncate == "drop":
                self.notes.add("long", where)
                return None
            self.notes.add("cut", where)
            kept = self._kept(places, learned, text.prompts)
            ids, learned = ids[kept], learned[kept]
        if not learned[1:].any():
            self.notes.add("nothing", where)
            return None
        return Sample(ids, learned)

    @cached_property
    def _spelled(self) -> re.Pattern[str]:
        """Any special token."""
        return re.compile("|".join(map(re.escape, self.special.ids)))

    def _joined(self, conversation: Conversation) -> Rendered:
        """Return a prompt and its completion as one text."""
        prompt, completion = prompt_of(conversation)
        first = len(prompt) + len(self.separator)
        text = f"{prompt}{self.separator}{completion}"
        return Rendered(text, ((first, len(text)),), ((0, len(prompt)),))

    def _rendered(self, conversation: Conversation, template: ChatTemplate) -> Rendered:
        """Return the text of a conversation by the template, after a look for usual accidents."""
        found = rendered(conversation, template, tuple(self.special.ids), prompts=self.truncate != "drop")
        where, messages = conversation.record.where, conversation.messages
        if leaves_out(conversation, found):
            raise InexactRegions(
                f"{where}: the template must write the assistant's text, {template.told} leaves some of it out",
                "it may take contents as lists of parts; --chat_template names another one",
            )
        texts = [message["content"].strip() for message in messages]
        if messages[0]["role"] == "system" and texts[0] not in found.text:
            self.notes.add("system", where)
        answers = tuple(text for number in conversation.learned if (text := texts[number]))
        if any(found.text[slice(*region)].rstrip().endswith(answers) for region in found.regions):
            self.notes.add("endless", where)
        if self.special.ids and any(self._spelled.search(text) for text in texts):
            self.notes.add("spelled", where)
        return found

    def _kept(self, places: Array, learned: Array, prompts: Sequence[Region]) -> Array:
        """Return the numbers of the tokens that stay, at most `most`."""
        keep = np.ones(len(places), bool)
        for first, end in prompts:
            excess = int(keep.sum()) - self.most
            inside = np.flatnonzero((places[:, 0] >= first) & (places[:, 1] <= end) & ~learned)
            if excess > 0:
                keep[inside[:excess] if self.truncate == "keep_end" else inside[-excess:]] = False
        return np.flatnonzero(keep)[: self.most]


def learned_tokens(places: Array, regions: Sequence[Region]) -> tuple[Array, int]:
    """Return whether each token is learned, and the number of tokens across a border.

    Args:
        places: (T, 2) int64, the characters of each token, the first and the end
        regions: of the text

    Returns:
        (T,) bool, and a number
    """
    starts, ends = places.T
    learned = np.zeros(len(places), bool)
    across = 0
    for first, end in regions:
        # A token of no characters stands where it begins.
        inside = (starts < end) & (np.maximum(ends, starts + 1) > first)
        across += int(np.count_nonzero(inside & ((starts < first) | (ends > end))))
        learned |= inside
    return learned, across
