"""The text of a conversation by a template, and its regions that the assistant says, each with the end of its turn.

They are exact, or the conversation is refused. A template with `{% generation %}` says them itself. Of another one:

- A turn begins where the text ends that the template writes for the messages before it, with the begin of an answer.
  Where that is not how the whole text begins, or the template writes no such begin, it begins with the message's
  content. This is found by marks: characters that are put around the contents.
- It ends with the first special token behind its content, and those that follow that at once in the same message; where
  there is none, before the next message.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from cstool.foundation.errors import DataError
from cstool.training.data.chat_templates import BEGIN, END, ChatTemplate, TemplateFault
from cstool.training.data.conversations import Conversation

Region = tuple[int, int]
"""the first character, and the one behind the last"""
_DIGITS = 0xFDD2
"""code of the digit 0 of a mark's number; no characters, as the marks are none"""
_MARKS = re.compile(f"([{BEGIN}{END}])([{chr(_DIGITS)}-{chr(_DIGITS + 9)}]*)")
_LINE = re.compile(r"^(?=[^\n])", re.M)
"""where a line begins that is not empty"""
_COMPARED = 16
"""characters of an answer that are looked for in the text"""
_CODES = re.compile(f"[{BEGIN}{END}{chr(_DIGITS)}-{chr(_DIGITS + 9)}]")
_HINT = (
    "put {% generation %} and {% endgeneration %} around the assistant's text in the template, or leave the records out"
)


class InexactRegions(DataError):
    """The assistant's text of a conversation is not found exactly."""


@dataclass(frozen=True)
class Rendered:
    """A conversation as a text.

    Args:
        text: as the template writes it
        regions: of the text, in order, that are learned
        prompts: contents of the user's messages, in order, as far as they are known exactly
    """

    text: str
    regions: tuple[Region, ...]
    prompts: tuple[Region, ...] = ()


def rendered(
    conversation: Conversation, template: ChatTemplate, ends: Sequence[str], *, prompts: bool = False
) -> Rendered:
    """Return the text of a conversation and its learned regions.

    Args:
        conversation: in order
        template: of the data set
        ends: special tokens, which may end a turn
        prompts: whether the places of the user's contents are wanted

    Raises:
        DataError: the template fails
        InexactRegions: the regions cannot be found exactly
    """
    where = conversation.record.where
    try:
        text = template.render(conversation.messages, conversation.tools)
    except TemplateFault as error:
        raise DataError(f"{where}: {error.message}") from None
    check_characters(text, where)
    finder = _Finder(conversation, template, ends, text)
    asked = finder.prompts() if prompts else ()
    if template.has_generation and (tagged := finder.tagged()) is not None:
        return Rendered(text, tagged, asked)
    regions = [finder.turn(number) for number in conversation.learned]
    ordered = [0, *(place for region in regions if region is not None for place in region), len(text)]
    if None in regions or any(first > second for first, second in pairwise(ordered)):
        raise InexactRegions(
            f"{where}: the template must mark the assistant's text, or write it in order, {template.told} does neither",
            _HINT,
        )
    return Rendered(text, tuple(region for region in regions if region is not None), asked)


def check_characters(text: str, where: str) -> None:
    """Check that a text has no mark in it, or raise DataError."""
    if (found := _CODES.search(text)) is not None:
        raise DataError(f"{where}: must be made of characters, got U+{ord(found[0]):X}, which is none")


def leaves_out(conversation: Conversation, found: Rendered) -> bool:
    """Tell whether the end of an answer is in none of the learned regions: the template does not write it."""
    texts = [found.text[slice(*region)] for region in found.regions]
    ends = [conversation.messages[number]["content"].strip()[-_COMPARED:] for number in conversation.learned]
    return any(all(end not in text for text in texts) for end in ends)


class _Finder:
    """Finds the places of the messages of one conversation in its text."""

    def __init__(self, conversation: Conversation, template: ChatTemplate, ends: Sequence[str], text: str) -> None:
        self._conversation, self._template, self._ends, self._text = conversation, template, ends, text
        self._messages = conversation.messages

    def prompts(self) -> tuple[Region, ...]:
        """Return the places of the user's contents that are known."""
        begins, stops = self._contents
        users = (number for number, message in enumerate(self._messages) if message["role"] == "user")
        return tuple((begins[n], stops[n]) for n in users if n in begins and n in stops)

    def tagged(self) -> tuple[Region, ...] | None:
        """Return the regions that the template's own tags are around; None where these change its text."""
        plain, marks = unmarked(self._render(len(self._messages), marked=True) or "")
        kinds = [mark.kind for mark in marks]
        if plain != self._text or kinds != [BEGIN, END] * (len(marks) // 2):
            return None
        regions = [(begin.place, end.place) for begin, end in zip(marks[::2], marks[1::2], strict=True)]
        if self._conversation.learned_from:
            # Tags are around the assistant's messages of the prompt, too.
            before = self._render(self._conversation.learned_from)
            if before is None or not self._text.startswith(before):
                return None
            regions = [region for region in regions if region[0] >= len(before)]
        whole: list[Region] = []
        for begin, end in regions:
            if whole and whole[-1][1] == begin:  # some templates mark the end of a turn by itself
                begin = whole.pop()[0]
            if begin < end:
                whole.append((begin, end))
        return tuple(whole)

    def turn(self, number: int) -> Region | None:
        """Return the region of a message of the assistant; None where it is not known exactly."""
        begin, behind = (places.get(number) for places in self._contents)
        bound = self._bound(number)
        start, asked = begin, self._render(number, asks=True)
        if asked is not None and self._text.startswith(asked) and (begin is None or self._header):
            start = len(asked)
        if start is None:
            start = self._line_begins.get(number)
        if start is None:
            return None
        if behind is None and bound is not None:
            core = self._messages[number]["content"].strip()
            place = self._text.rfind(core, start, bound)
            behind = start if place < 0 else place + len(core)
        stop = None if behind is None else self._stop(behind, bound)
        return None if stop is None or stop < start else (start, stop)

    def _bound(self, number: int) -> int | None:
        """Return the place where a message ends, with all that belongs to it; None where it is not known."""
        if number == len(self._messages) - 1:
            return len(self._text)
        after = self._render(number + 1)
        return len(after) if after is not None and self._text.startswith(after) else None

    def _stop(self, behind: int, bound: int | None) -> int | None:
        """Return the end of a turn whose content ends before `behind`, and whose message ends at `bound`."""
        if bound is not None:
            places = [(place, -len(end)) for end in self._ends if (place := self._text.find(end, behind, bound)) >= 0]
            place, length = min(places, default=(bound, 0))
            stop = place - length
            # A turn may end with several, such as the end of a response and the end of a turn.
            while more := [end for end in self._ends if self._text.startswith(end, stop, bound)]:
                stop += len(max(more, key=len))
            return stop
        # Most messages end as the last one does, others with another special token.
        if not self._tail:
            return None if self._tail is None else behind
        ends = [self._tail]
        if self._tail in self._ends:
            ends += [end for end in self._ends if not self._header.startswith(end)]
        found = [end for end in ends if self._text.startswith(end, behind)]
        return behind + len(max(found, key=len)) if found else None

    @cached_property
    def _header(self) -> str:
        """The begin of an answer."""
        first = self._conversation.learned[0]
        before, asked = self._render(first) or "", self._render(first, asks=True) or ""
        return asked.removeprefix(before)

    @cached_property
    def _tail(self) -> str | None:
        """The end of the last message, behind its content."""
        behind = self._contents[1].get(len(self._messages) - 1)
        return None if behind is None else self._text[behind : self._stop(behind, len(self._text))]

    @cached_property
    def _contents(self) -> tuple[dict[int, int], dict[int, int]]:
        """The places where contents of messages begin and stop, by number, if they are exact."""
        contents = [message["content"] for message in self._messages]
        # A template may strip contents: then marks go within the white space around them.
        for cores in dict.fromkeys((tuple(contents), tuple(map(str.strip, contents)))):
            found = self._marks([f"{BEGIN}{core}{END}" if core else "" for core in cores], cores)
            if found is not None:
                return found
        return {}, {}

    @cached_property
    def _line_begins(self) -> dict[int, int]:
        """The places where contents begin whose first lines, such as thoughts, the template leaves out."""
        cores = [message["content"].strip() for message in self._messages]
        found = self._marks([f"{_LINE.sub(BEGIN, core)}{END}" if core else "" for core in cores], cores)
        return {} if found is None else found[0]

    def _marks(self, told: Sequence[str], cores: Sequence[str]) -> tuple[dict[int, int], dict[int, int]] | None:
        """Return the places of the first begin and of the only end in each message; None where marks change the text.

        Args:
            told: `cores` with marks, which get the number of their message
            cores: parts of the contents
        """
        messages = []
        for number, (message, text, core) in enumerate(zip(self._messages, told, cores, strict=True)):
            marked = text.replace(BEGIN, numbered(BEGIN, number)).replace(END, numbered(END, number))
            messages.append({**message, "content": message["content"].replace(core, marked, 1) if core else ""})
        try:
            plain, marks = unmarked(self._template.render(messages, self._conversation.tools))
        except TemplateFault:
            return None
        if plain != self._text:
            return None
        begins = {mark.number: mark.place for mark in reversed(marks) if mark.kind == BEGIN}
        counts = Counter(mark.number for mark in marks if mark.kind == END)
        stops = {mark.number: mark.place for mark in marks if mark.kind == END and counts[mark.number] == 1}
        return {number: place for number, place in begins.items() if place <= stops.get(number, place)}, stops

    def _render(self, count: int, *, asks: bool = False, marked: bool = False) -> str | None:
        """Return the text of the first messages; None where the template refuses them."""
        try:
            return self._template.render(self._messages[:count], self._conversation.tools, asks=asks, marked=marked)
        except TemplateFault:
            return None


def numbered(mark: str, number: int) -> str:
    """Return a mark with the number of its message."""
    return mark + "".join(chr(_DIGITS + int(digit)) for digit in str(number))


@dataclass(frozen=True)
class Mark:
    """A mark of a message, or of none (-1), and its place in the text without marks."""

    kind: str
    number: int
    place: int


def unmarked(text: str) -> tuple[str, list[Mark]]:
    """Return a text without marks, and the marks."""
    pieces, marks, place, last = [], [], 0, 0
    for found in _MARKS.finditer(text):
        pieces.append(text[last : found.start()])
        place, last = place + len(pieces[-1]), found.end()
        digits = "".join(str(ord(digit) - _DIGITS) for digit in found[2])
        marks.append(Mark(found[1], int(digits or -1), place))
    return "".join([*pieces, text[last:]]), marks
