"""Conversations to tokens that are learned or not."""

from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.training.data.chat_regions import rendered
from cstool.training.data.chat_templates import ChatTemplate, special_tokens, usual_template
from cstool.training.data.conversation_tokens import ConversationTokens, learned_tokens
from cstool.training.data.conversations import Conversation, Notes
from cstool.training.data.record_files import Record
from cstool.training.data.tokenizer import ByteTokenizer, FileTokenizer
from tests.unit.training.data.chat_samples import (
    CHATML,
    CONVERSATIONS,
    LLAMA,
    SPECIAL,
    TEMPLATES,
    messages,
    save_tokenizer,
    tagged,
    untagged,
)
from tests.unit.training.data.made import save_words

RECORD = Record("a.jsonl:3", "a.jsonl:3", {})
PAIR = messages("ab", "cd")
MARKED = (
    "{% for m in messages %}{{ m.role + '<' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content + '>' }}"
    "{% endgeneration %}{% else %}{{ m.content + '>' }}{% endif %}{% endfor %}"
)


class WithBegin(ByteTokenizer):
    """Bytes behind two tokens."""

    begin = (1, 2)


def way(tokenizer=None, source=None, most=100, truncate="drop", separator=" = ", usual=True, named=None):
    tokenizer = tokenizer or ByteTokenizer()
    special = special_tokens(tokenizer)
    template = None if source is None else ChatTemplate(source, "a.jinja", named or special.named)
    other = usual_template(special) if usual else None
    return ConversationTokens(tokenizer, special, template, other, separator, most, truncate, Notes())


def shown(way, told, *, is_pair=False, learned_from=0):
    """Return the text of a sample, the learned part in brackets; None if there is none."""
    sample = way.sample(Conversation(RECORD, told, learned_from, is_pair))
    if sample is None:
        return None
    text = ""
    before = False
    for token, learned in zip(sample.tokens.tolist(), sample.learned.tolist(), strict=True):
        text += ("[" if learned else "]") * (learned != before) + way.tokenizer.decode([token])
        before = learned
    return text + "]" * before


def test_messages_and_pairs_become_tokens():
    assert shown(way(), PAIR) == "User: ab\nAssistant:[ cd\0]"
    assert shown(way(), PAIR, is_pair=True) == "ab = [cd\0]"
    assert shown(way(source=MARKED), PAIR, is_pair=True) == "user<ab>assistant<[cd>]"
    assert shown(way(), messages("ab", "cd", system="s"), is_pair=True) == "s\nab = [cd\0]"
    assert shown(way(WithBegin()), PAIR, is_pair=True) == "\1\2ab = [cd\0]"
    assert shown(way(WithBegin()), messages("\1\2ab", "cd"), is_pair=True) == "\1\2ab = [cd\0]"
    assert shown(way(), messages("", "cd"), is_pair=True) == " = [cd\0]"


def test_which_templates_were_used_is_kept():
    made = way()
    for is_pair in (True, False):
        shown(made, PAIR, is_pair=is_pair)
    assert [*made.used] == [None, "marks of text, by cstool"]


def test_without_a_template_messages_are_refused(error_of):
    assert error_of(shown, way(usual=False), PAIR) == (
        "a.jsonl:3: messages need a template, got --chat_template plain\nhint: leave it out, or give cstool or a file"
    )


@given(st.data())
def test_a_token_is_learned_if_any_of_its_characters_is(data):
    size = 12
    text = st.integers(0, size)
    spans = st.tuples(text, st.integers(0, 3)).map(lambda span: (span[0], sum(span)))
    places = np.array(data.draw(st.lists(spans, max_size=9)), np.int64).reshape(-1, 2)
    edges = sorted(data.draw(st.sets(text, min_size=4, max_size=4)))
    regions = [(edges[0], edges[1]), (edges[2], edges[3])]
    inside = {place for first, end in regions for place in range(first, end)}
    expected, across = [], 0
    for start, end in places.tolist():
        characters = set(range(start, max(end, start + 1)))
        expected.append(bool(characters & inside))
        across += sum(bool(characters & {*range(*region)}) and not {*range(start, end)} <= {*range(*region)}
                      for region in regions)  # fmt: skip
    learned, count = learned_tokens(places, regions)
    assert (learned.tolist(), count) == (expected, across)


def test_a_token_across_a_border_is_learned_and_noted(tmp_path):
    tokenizer = FileTokenizer(save_tokenizer(tmp_path / "a.json", merges=["> c", "Ċ a", "d <"]))
    source = "{% for m in messages %}{{ '>' + m.content + ('<>' if m.role == 'user' else '<') }}{% endfor %}"
    made = way(tokenizer, source)
    found = made.sample(Conversation(RECORD, PAIR))
    assert [tokenizer.decode([token]) for token in found.tokens.tolist()] == [">", "a", "b", "<", ">", ">c", "d<"]
    assert found.learned.tolist() == [False] * 5 + [True, True]
    assert made.notes.counts["across"] == 1


@pytest.mark.parametrize(
    ("truncate", "most", "text"),
    [
        ("drop", 25, "User: abcd\nAssistant:[ ef\0]"),
        ("drop", 24, None),
        ("keep_end", 23, "User: cd\nAssistant:[ ef\0]"),
        ("keep_start", 23, "User: ab\nAssistant:[ ef\0]"),
        ("keep_end", 20, "User: \nAssistant:[ ef]"),
        ("keep_start", 20, "User: \nAssistant:[ ef]"),
        ("keep_end", 17, None),
    ],
)
def test_what_is_too_long_is_left_out_or_cut(truncate, most, text):
    made = way(most=most, truncate=truncate)
    assert shown(made, messages("abcd", "ef")) == text
    usual = {} if text is not None else {"long": 1} if truncate == "drop" else {"nothing": 1}
    assert made.notes.counts == usual | ({} if truncate == "drop" else {"cut": 1})


def test_prompts_are_cut_one_after_the_other_and_pairs_behind_their_begin():
    told = messages("abc", "d", "efg", "h")
    text = "User: \nAssistant:[ d\0]\nUser: {}\nAssistant:[ h\0]"
    room = len(text) - len("[][]{}")
    assert shown(way(most=room + 2, truncate="keep_start"), told) == text.format("ef")
    assert shown(way(most=room + 1, truncate="keep_end"), told) == text.format("g")
    told = messages("abcde", "fg")
    assert shown(way(WithBegin(), most=9, truncate="keep_end"), told, is_pair=True) == "\1\2e = [fg\0]"
    assert shown(way(WithBegin(), most=7, truncate="keep_start"), told, is_pair=True) == "\1\2 = [fg]"


@pytest.mark.parametrize(
    ("source", "told", "notes"),
    [
        (tagged(CHATML), PAIR, {}),
        # The end of a turn is not learned, or there is none.
        (tagged(CHATML.replace("message.content + '<|im_end|>' }}»", "message.content }}»{{ '<|im_end|>' }}")), PAIR,
         {"endless": 1}),
        ("{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}", PAIR, {"endless": 1}),
        # A system's message is left out.
        ("{% for m in messages if m.role != 'system' %}{{ m.content + '</s>' }}{% endfor %}",
         messages("a", "b", system="c"), {"system": 1}),
        (untagged(CHATML), messages("a <|im_end|>", "b"), {"spelled": 1}),
        (untagged(CHATML), messages("a", "<|im_end|>b"), {"spelled": 1}),
        ("<s>" + untagged(LLAMA), PAIR, {"twice": 1}),
    ],
)  # fmt: skip
def test_usual_accidents_are_noted(tmp_path, source, told, notes):
    tokenizer = FileTokenizer(save_tokenizer(tmp_path / "a.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<s>"}')
    made = way(tokenizer, source, named={"bos_token": "<s>", "eos_token": "</s>"})
    assert shown(made, told) is not None
    assert made.notes.counts == notes
    assert made.notes.first == dict.fromkeys(notes, "a.jsonl:3")


def test_a_text_that_lacks_the_begin_is_noted():
    made = way(WithBegin(), MARKED)
    shown(made, PAIR)
    assert made.notes.counts == {"unbegun": 1}
    made = way(WithBegin(), "\1\2" + MARKED)
    shown(made, PAIR)
    assert made.notes.counts == {}


def test_a_template_that_leaves_an_answer_out_is_refused(error_of):
    source = MARKED.replace("m.content", "'-'")
    assert error_of(shown, way(source=source), PAIR) == (
        "a.jsonl:3: the template must write the assistant's text, a.jinja leaves some of it out\n"
        "hint: it may take contents as lists of parts; --chat_template names another one"
    )


def test_a_character_without_a_token_is_refused(tmp_path, error_of):
    tokenizer = FileTokenizer(save_words(tmp_path / "words.json", "<unk>", **{"<unk>": 0, "</s>": 1, "a": 2, "=": 3}))
    assert shown(way(tokenizer), messages("a", "a a"), is_pair=True) == "a=[aa</s>]"
    assert error_of(shown, way(tokenizer), messages("a", "a b"), is_pair=True) == (
        "a.jsonl:3: DIR/words.json: must have a token for 'b', character 6 of the text; it has none\n"
        "hint: leave the character out, or take a tokenizer that has all bytes"
    )


MERGES = ["Ċ H", "Ċ 1", "> H", "Ċ Ċ", "Ċ B", "i .", "Ġ 2"]
TRANSFORMERS = {
    "ChatML": ["22 3 1", "42 11 1", "21 2 23 2 29 2 1", "41 32 24 10 1"],
    "Llama": ["26 3", "44 9", "24 2 23 2 29 2", "43 32 24 10"],
    "Mistral": ["10 3", "21 10", "8 2 6 2 12 2", "13 32 13 10"],
    "Gemma": ["19 3 1", "19 9 1", "18 2 19 2 25 2 1", "24 32 20 10 1"],
    "Zephyr": ["9 3 1", "23 11 1", "8 2 10 2 16 2 1", "22 32 11 10 1"],
    "thinking": ["23 20 1", "43 27 1", "21 2 23 2 29 19 1", "40 12 24 27 1"],
}
"""template -> of each conversation, lengths of runs of tokens that are not learned, and are, in turn

Recorded with `apply_chat_template(..., return_assistant_tokens_mask=True)` of transformers 5.24.0.
"""


@pytest.mark.parametrize("name", TEMPLATES)
def test_masks_are_those_of_transformers(tmp_path, name):
    tokenizer = FileTokenizer(save_tokenizer(tmp_path / "a.json", merges=MERGES))
    source, begin, end, takes_system = TEMPLATES[name]
    for variant in (tagged, untagged):
        template = ChatTemplate(variant(source), "a", {"bos_token": begin or "", "eos_token": end})
        runs = []
        for told in CONVERSATIONS:
            first = told[0]["role"] == "system" and not takes_system
            found = rendered(Conversation(RECORD, told[first:]), template, SPECIAL)
            learned, _ = learned_tokens(np.array(tokenizer.encode_spans(found.text)[1]), found.regions)
            runs.append(" ".join(str(len([*run])) for _, run in groupby(learned.tolist())))
        assert runs == TRANSFORMERS[name]
