"""The tokens that the vendor's token generators make of the turns of their hooks, and which of these are learned.

They are the same to the token, with the odd ones: regions of a conversation are its contents, each with the first end
of a turn behind it; where no such end is in the text but the last, one more token. A token across the border of two
regions is of the first. Packed texts have an end of a text only where it is also the end of a row.

Source: Cerebras Model Zoo 2.10.0, data_preparation/data_preprocessing: finetuning_token_generator.py,
pretraining_token_generator.py, dpo_token_generator.py, nlg_token_generator.py and the functions of utils.py.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cstool.foundation.errors import DataError
from cstool.training.data.chat_regions import check_characters, numbered, unmarked
from cstool.training.data.chat_templates import BEGIN, ChatTemplate, SpecialTokens, TemplateFault
from cstool.training.data.conversation_tokens import Sample
from cstool.training.data.conversations import Notes
from cstool.training.data.dataset import Array
from cstool.training.data.preprocess_file import PreprocessPlan
from cstool.training.data.record_files import Record
from cstool.training.data.tokenizer import FileTokenizer
from cstool.training.data.vendor_hooks import ASSISTANT, COMPLETION, PROMPT, USER, TokensHook, Turn

_SEPARATOR = "<|sep|>"
_TEXT_REGION = "text"
_PLAIN = re.compile(r"[\t\n -%'-~]*")
"""a text that ftfy leaves as it is: ASCII without entities of HTML and control characters"""


@dataclass
class _Region:
    """A text of a role.

    Args:
        first, end: its characters, then its tokens
        takes_next: whether one more token belongs to it
    """

    role: str
    first: int
    end: int
    takes_next: bool = False


@dataclass
class VendorTokens:
    """The way from records to samples, by the mode of a file.

    Args:
        plan: the file
        tokenizer: of the data set
        special: its special tokens
        template: of conversations
        end: the token that ends a text
        pad: the token that fills rows
        notes: of unusual records
    """

    plan: PreprocessPlan
    tokenizer: FileTokenizer
    special: SpecialTokens
    template: ChatTemplate
    end: int
    pad: int
    notes: Notes
    _begun: list[int] = field(default_factory=list)
    """tokens of packed texts that fill no row yet"""

    def __post_init__(self) -> None:
        self._most = self.plan.processing.max_seq_length
        self._end_text = self.tokenizer.words()[self.end]

    def samples(self, record: Record) -> list[Sample]:
        """Return the samples of a record, of a preference the chosen one and the rejected; none if it is left out.

        Raises:
            DataError: the record has no text where one must be, the template fails, or a character has no token
        """
        if isinstance(self.plan.hook, TokensHook):
            return self._of_numbers(self.plan.hook, record)
        turns = self.plan.hook.turns(record, self.notes)
        if turns is None:
            return []
        turns = turns if self.plan.setup.mode == "dpo" else [(role, self._clean(text, record)) for role, text in turns]
        ways = {"pretraining": self._of_text, "finetuning": self._of_turns, "dpo": self._of_preference}
        return ways[self.plan.setup.mode](turns, record)

    def rest(self) -> list[Sample]:
        """Return the sample of the texts that filled no row."""
        rest, self._begun = self._begun, []
        return self._rows([rest], None) if rest else []

    def _clean(self, text: str, record: Record) -> str:
        processing = self.plan.processing
        if not processing.use_ftfy or _PLAIN.fullmatch(text):
            return text
        try:
            from ftfy import fix_text
        except ImportError:
            raise DataError(
                f"{record.where}: use_ftfy: true needs the package ftfy for this text, which is not installed",
                "pip install 'cstool[ftfy]', or ftfy itself; --set processing.use_ftfy=false takes texts as they are",
            ) from None
        return str(fix_text(text, normalization=processing.ftfy_normalizer))

    def _encoded(self, text: str, record: Record) -> tuple[list[int], list[tuple[int, int]]]:
        try:
            return self.tokenizer.encode_spans(text)
        except DataError as error:
            raise DataError(f"{record.where}: {error.message}", error.hint) from None

    def _of_numbers(self, hook: TokensHook, record: Record) -> list[Sample]:
        context, completion = hook.tokens(record)
        count = len(context) + len(completion)
        if count > self._most + 1:
            self.notes.add("long", record.where)
            return []
        learned = np.arange(count) >= max(len(context), 2)
        return [Sample(np.array([*context, *completion], np.int32), learned)]

    def _of_text(self, turns: Sequence[Turn], record: Record) -> list[Sample]:
        """Cut a text, packed behind the ones before it, into rows."""
        tokens = [*self._begun, *self.tokenizer.begin, *self._encoded(turns[0][1], record)[0]]
        rows = [tokens[start : start + self._most + 1] for start in range(0, len(tokens), self._most + 1)]
        self._begun = []
        if self.plan.dataset.pack_sequences and not self.plan.dataset.use_vsl and len(rows[-1]) <= self._most:
            self._begun = rows.pop()
        return self._rows(rows, record)

    def _rows(self, rows: Sequence[list[int]], record: Record | None) -> list[Sample]:
        """Return the samples of rows, the last of which ends as a text does."""
        if rows and rows[-1][-1] != self.end:
            rows[-1][self._most :] = []
            rows[-1].append(self.end)
        long = [row for row in rows if len(row) >= max(2, self.plan.processing.min_sequence_len)]
        for _ in range(len(rows) - len(long)):
            self.notes.add("short", "the end of the texts" if record is None else record.where)
        return [Sample(np.array(row, np.int32), np.ones(len(row), bool)) for row in long]

    def _of_turns(self, turns: Sequence[Turn], record: Record) -> list[Sample]:
        """Return the sample of a prompt with its completion, or of a conversation."""
        joined = turns[0][0] == PROMPT
        text, regions = self._joined(turns) if joined else self._written(turns, record)
        self._end_turns(text, regions, is_chat=not joined)
        tokens, spans = self._encoded(text, record)
        before = len(self.tokenizer.begin) if joined else 0
        ids = np.array([*self.tokenizer.begin[:before], *tokens], np.int32)
        self._find_tokens(np.array([(0, 0)] * before + [*spans], np.int64).reshape(-1, 2), regions)
        if len(ids) < self.plan.processing.min_sequence_len:
            self.notes.add("short", record.where)
            return []
        all_count = self.plan.processing.semantic_loss_weight.get(_TEXT_REGION) == 1
        learned = np.zeros(len(ids), bool)
        for region in regions:
            learned[region.first : region.end] = all_count or region.role in (ASSISTANT, COMPLETION)
        endless = not joined and self._never_ends(ids, regions)
        if len(ids) > self._most:
            kept = self._kept(len(ids), regions)
            self.notes.add("long" if kept is None else "cut", record.where)
            if kept is None:
                return []
            ids, learned = ids[kept], learned[kept]
        if not learned[1:].any():
            self.notes.add("nothing", record.where)
            return []
        if endless:
            self.notes.add("endless", record.where)
        return [Sample(ids, learned)]

    def _joined(self, turns: Sequence[Turn]) -> tuple[str, list[_Region]]:
        (_, prompt), (_, completion) = turns
        usual = self.special.named.get("sep_token", _SEPARATOR)
        separator = usual if self.plan.joins else self.plan.dataset.sep_token or ""
        first = len(prompt) + len(separator)
        text = f"{prompt}{separator}{completion}{self._end_text}"
        return text, [_Region(PROMPT, 0, len(prompt)), _Region(COMPLETION, first, first + len(completion))]

    def _written(self, turns: Sequence[Turn], record: Record) -> tuple[str, list[_Region]]:
        """Return the text of a conversation by the template, and the contents in it."""
        for _, content in turns:
            check_characters(content, record.where)
        marked = [{"role": role, "content": numbered(BEGIN, n) + text} for n, (role, text) in enumerate(turns)]
        try:
            text, marks = unmarked(self.template.render(marked))
        except TemplateFault as error:
            raise DataError(f"{record.where}: {error.message}") from None
        regions, end = [], 0
        for number, (role, content) in enumerate(turns):
            first = next((mark.place for mark in marks if mark.number == number and mark.place >= end), None)
            if first is None:
                raise DataError(
                    f"{record.where}: the template must write all messages in order, {self.template.told} does not",
                    "leave the record out, or give another dataset.chat_template",
                )
            end = first + len(content)
            regions.append(_Region(role, first, end))
        return text, regions

    def _end_turns(self, text: str, regions: Sequence[_Region], *, is_chat: bool) -> None:
        """Give each region the end of its turn."""
        end = self.plan.processing.end_of_turn_token or self._end_text
        places = [found.end() for found in re.compile(re.escape(end)).finditer(text, regions[0].first)]
        number = at = 0
        while number < len(places) and at < len(regions):
            region, start = regions[at], places[number] - len(end)
            if start < region.end:
                number += 1
                continue
            if at + 1 == len(regions) or region.end <= start < regions[at + 1].first:
                region.end = places[number]
                number += 1
            at += 1
        if is_chat and len(places) <= 1:
            for before, region in zip(regions, regions[1:], strict=False):
                before.takes_next = before.takes_next or before.end != region.first
            regions[-1].takes_next = len(regions) > 1 and regions[-1].end < len(text)

    def _find_tokens(self, spans: Array, regions: Sequence[_Region]) -> None:
        """Turn the characters of regions into tokens, (T, 2) int64 `spans` has the characters of each."""
        starts, ends = spans.T
        after = 0
        for region in regions:
            holds = (starts > region.first) | ((starts <= region.first) & (ends > region.first))
            first = _next(holds, after)
            follows = np.append(starts[1:] >= region.end, True)
            last = _next(
                ((ends >= region.end) & (starts < region.end)) | ((ends < region.end) & follows),
                first,
            )
            region.first, region.end = first, last + 1 + region.takes_next
            after = region.end

    def _never_ends(self, ids: Array, regions: Sequence[_Region]) -> bool:
        """Tell whether the end of an answer is no special token: a model of these does not stop."""
        known = {*self.special.ids.values()}
        answers = [region for region in regions if region.role == ASSISTANT]
        return any(known.isdisjoint(ids[each.end - 1 - each.takes_next : each.end].tolist()) for each in answers)

    def _kept(self, count: int, regions: Sequence[_Region]) -> Array | None:
        """Return the numbers of the tokens that stay, as many as there is room for; None if no such cut is asked for.

        First the prompts or the user's texts, the longest first, are cut down to `max_turn_length`, then the answers.
        """
        asked = self.plan.dataset.truncate_to_msl
        if asked is None:
            return None
        least = self._most if asked.max_turn_length is None else asked.max_turn_length
        excess, keep = count - self._most, np.ones(count, bool)
        first = PROMPT if regions[0].role == PROMPT else USER
        if first == PROMPT:
            regions = [replace(regions[0], first=0), *regions[1:]]
        for role in (first, COMPLETION if first == PROMPT else ASSISTANT):
            turns = [region for region in regions if region.role == role]
            if role != first and sum(turn.end - turn.first - least for turn in turns) < excess:
                return None
            for turn in sorted(turns, key=lambda turn: turn.first - turn.end):
                cut = min(excess, max(0, turn.end - turn.first - least))
                if role == first and asked.prompt_truncation_mode != "keep_start":
                    keep[turn.first : turn.first + cut] = False
                else:
                    keep[turn.end - cut : turn.end] = False
                excess -= cut
            if not excess:
                return np.flatnonzero(keep)
        return None

    def _of_preference(self, turns: Sequence[Turn], record: Record) -> list[Sample]:
        """Return the samples of both answers to a prompt."""
        (_, prompt), *answers = turns
        whole: list[list[int]] = []
        shown: list[str] = []
        mark = self.plan.dataset.response_delimiter
        for _, answer in answers:
            messages = [{"role": USER, "content": prompt}, {"role": ASSISTANT, "content": mark + answer}]
            try:
                text = self._clean(self.template.render(messages), record)
            except TemplateFault as error:
                raise DataError(f"{record.where}: {error.message}") from None
            place = text.rfind(mark) if not shown else len(shown[0])
            if place < 0:
                raise DataError(
                    f"{record.where}: the template must write the answer, {self.template.told} does not",
                    "leave the record out, or take another tokenizer",
                )
            shown.append(text[:place])
            whole.append(self._encoded(text[:place] + text[place + len(mark) :], record)[0])
        begin = self._encoded(shown[0], record)[0]
        counts = [len(begin) - (tokens[: len(begin)] != begin) for tokens in whole]
        longest = max(len(tokens) - count for tokens, count in zip(whole, counts, strict=True))
        samples = []
        if any(count + longest > self._most for count in counts):
            self.notes.add("cut", record.where)
        for tokens, count in zip(whole, counts, strict=True):
            kept = tokens[:count]
            if count + longest > self._most:
                kept = kept[-self.plan.dataset.max_prompt_length :]
            room = self._most - len(kept)
            rest = tokens[count:] if len(kept) + longest <= self._most else tokens[count : count + max(0, room)]
            if not kept or not rest:
                self.notes.add("long" if kept else "empty", record.where)
                return []
            # The last token has a label, too: the padding behind it.
            ids = np.array([*kept, *rest, self.pad], np.int32)
            samples.append(Sample(ids, np.arange(len(ids)) >= len(kept)))
        return samples


def _next(holds: Array, start: int) -> int:
    """Return the first place from `start` on where something holds, the last of all if there is none."""
    found = np.flatnonzero(holds[start:])
    return start + int(found[0]) if len(found) else len(holds) - 1
