"""Regions of the assistant's text in conversations that templates write."""

import pytest

from cstool.training.data.chat_regions import leaves_out, rendered
from cstool.training.data.chat_templates import ChatTemplate
from cstool.training.data.conversations import Conversation
from cstool.training.data.record_files import Record
from tests.unit.training.data.chat_samples import (
    CHATML,
    CONVERSATIONS,
    GEMMA,
    LLAMA,
    MISTRAL,
    SPECIAL,
    TEMPLATES,
    THINKING,
    ZEPHYR,
    messages,
    tagged,
    untagged,
)

RECORD = Record("a.jsonl:3", "a.jsonl:3", {})
LONG = messages(*(str(number) for number in range(24)))


def found(source, told, *, prompts=False, learned_from=0, named=None):
    template = ChatTemplate(source, "a.jinja", named or {"bos_token": "<s>", "eos_token": "</s>"})
    return rendered(Conversation(RECORD, told, learned_from), template, SPECIAL, prompts=prompts)


def learned(source, told, **more):
    """Return the learned texts."""
    result = found(source, told, **more)
    return [result.text[slice(*region)] for region in result.regions]


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("told", [*CONVERSATIONS, LONG], ids=["one", "spaces", "three", "thoughts", "long"])
def test_regions_are_what_a_template_marks_itself_and_the_same_without_its_marks(name, told):
    source, begin, end, takes_system = TEMPLATES[name]
    if told[0]["role"] == "system" and not takes_system:
        told = told[1:]
    named = {"bos_token": begin or "", "eos_token": end}
    # The slow twin: the template writes brackets around the assistant's text, and nobody else does.
    text = ChatTemplate(source, "a", named).render(told)
    places, plain = [], ""
    for character in text:
        if character in "«»":
            places.append(len(plain))
        else:
            plain += character
    for variant in (tagged, untagged):
        result = found(variant(source), told, named=named)
        assert result.text == plain
        assert [place for region in result.regions for place in region] == places


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (CHATML, ["\nBecause. <|im_end|>"]),
        (LLAMA, ["Because.<|eot_id|>"]),
        (MISTRAL, ["\nBecause. </s>"]),
        (ZEPHYR, ["\nBecause. </s>"]),
        (THINKING, ["<think>\n\n</think>\n\n\nBecause. <|im_end|>"]),
    ],
)
def test_the_end_of_a_turn_is_learned(source, expected):
    assert learned(untagged(source), CONVERSATIONS[1]) == expected
    assert learned(untagged(GEMMA), CONVERSATIONS[2])[1:] == ["2<end_of_turn>"] * 2


def test_all_ends_of_a_turn_are_learned_and_tags_around_its_parts_are_one_text():
    source = "{% for m in messages %}<|user|>«{{ m.content }}»«<|im_end|><|eot_id|>»{% endfor %}"
    source += "{% if add_generation_prompt %}<|user|>{% endif %}"
    expected = ["1<|im_end|><|eot_id|>", "2<|im_end|><|eot_id|>"]
    assert learned(untagged(source), messages("One", "1", "Two", "2")) == expected
    assert learned(tagged(source), messages("One", "1"))[-1] == expected[0]


HEADER = "{% for m in messages %}{{ '# ' + m.role + '\\n' + m.content + END }}{% endfor %}"
ASKED = HEADER + "{% if add_generation_prompt %}{{ '# assistant\\n' }}{% endif %}"
PAIR = messages("one", "two", "three", "four")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (HEADER.replace("END", "'\\n'"), ["two\n", "four\n"]),
        (ASKED.replace("END", "'\\n'"), ["two\n", "four\n"]),
        (ASKED.replace("END", "''"), ["two", "four"]),
        (ASKED.replace("END", "'</s>\\n\\n'"), ["two</s>", "four</s>"]),
        # The last turn ends with another special token.
        (ASKED.replace("END", "('</s>' if loop.last else '<|eot_id|>')"), ["two<|eot_id|>", "four</s>"]),
        # Nothing that stands before the first message is taken for the begin of an answer.
        ("{{ messages | length }}" + ASKED.replace("END", "'\\n'"), ["two\n", "four\n"]),
        ("{{ messages | length }}" + ASKED.replace("END", "'\\n'").replace("m.content", "(m.content | trim)"),
         ["two\n", "four\n"]),
    ],
)  # fmt: skip
def test_regions_of_other_templates(source, expected):
    assert learned(source, PAIR) == expected


def test_of_a_prompt_of_messages_nothing_is_learned():
    for variant in (tagged, untagged):
        assert learned(variant(CHATML), PAIR, learned_from=3) == ["four<|im_end|>"]
        assert learned(variant(MISTRAL), PAIR, learned_from=3) == ["four</s>"]


def test_tags_that_change_the_text_are_of_no_use():
    source = "{% for m in messages %}{{ m.role ~ ': ' }}{% set t %}{% generation %}{{ m.content }}{% endgeneration %}"
    source += "{% endset %}{{ t | length }}{{ ' ' }}{% endfor %}"
    assert learned(source, PAIR) == ["assistant: 3 ", "assistant: 4 "]


def test_tags_around_nothing_have_nothing_learned():
    assert learned(untagged(CHATML) + "{% generation %}{% endgeneration %}", PAIR) == []


def test_an_empty_content_of_calls_is_learned_by_the_begin_of_its_turn():
    source = ASKED.replace("m.content", "(m.content or m.calls | tojson)").replace("END", "'</s>'")
    told = [*messages("one"), {"role": "assistant", "content": "", "calls": [1]}]
    assert learned(source, told) == ["[1]</s>"]


def test_prompts_are_told_where_they_are_known():
    result = found(untagged(MISTRAL), CONVERSATIONS[1], prompts=True)
    assert [result.text[slice(*region)] for region in result.prompts] == [" Why? "]
    result = found(untagged(LLAMA), CONVERSATIONS[1], prompts=True)
    assert [result.text[slice(*region)] for region in result.prompts] == ["Why?"]
    assert found(untagged(LLAMA), CONVERSATIONS[1]).prompts == ()


def test_an_answer_that_a_template_leaves_out_is_seen():
    for source, expected in ((CHATML, False), (CHATML.replace("message.content", "''"), True)):
        conversation = Conversation(RECORD, PAIR)
        result = rendered(conversation, ChatTemplate(tagged(source), "a", {}), SPECIAL)
        assert leaves_out(conversation, result) == expected


HINT = (
    "put {% generation %} and {% endgeneration %} around the assistant's text in the template, or leave the records out"
)


@pytest.mark.parametrize(
    ("source", "told", "message"),
    [
        ("{{ messages | map(attribute='content') | map('upper') | sort | join(' ') }}", PAIR,
         f"the template must mark the assistant's text, or write it in order, a.jinja does neither\nhint: {HINT}"),
        ("{{ messages | map(attribute='content') | map('length') | sort | join(' ') }}", PAIR,
         f"the template must mark the assistant's text, or write it in order, a.jinja does neither\nhint: {HINT}"),
        # Answers stand before questions.
        ("{% for m in messages[1::2] + messages[::2] %}{{ m.content }}{% endfor %}", PAIR,
         f"the template must mark the assistant's text, or write it in order, a.jinja does neither\nhint: {HINT}"),
        (untagged(GEMMA), CONVERSATIONS[1], "a.jinja: must write the conversation, got: no system messages"),
        (untagged(CHATML), messages("a", "b\ufdd3"), "must be made of characters, got U+FDD3, which is none"),
    ],
)  # fmt: skip
def test_conversations_without_exact_regions_are_refused(source, told, message, error_of):
    assert error_of(found, source, told) == f"a.jsonl:3: {message}"
