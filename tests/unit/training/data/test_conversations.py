"""Forms of records, and the conversations that they become."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.foundation.errors import DataError
from cstool.training.data.conversations import Keys, Notes, conversation_of, find_form, prompt_of, special_texts
from cstool.training.data.record_files import Record

SYSTEM, USER, ASSISTANT, TOOL = (
    {"role": role, "content": text} for role, text in zip("system user assistant tool".split(), "SUAT", strict=True)
)
OTHERS = "hint: --form names the form, and --messages_key, --prompt_key and --completion_key the keys"
RECORDS = [
    ({"messages": [USER, ASSISTANT]}, "messages (messages, role, content)", [USER, ASSISTANT], 0),
    ({"id": 3, "conversations": [SYSTEM, USER, ASSISTANT]}, "messages (conversations, role, content)",
     [SYSTEM, USER, ASSISTANT], 0),
    ({"conversations": [{"from": "human", "value": "U"}, {"from": "gpt", "value": "A"}]},
     "sharegpt (conversations, from, value)", [USER, ASSISTANT], 0),
    ({"messages": json.dumps([USER, ASSISTANT])}, "messages (messages, role, content)", [USER, ASSISTANT], 0),
    ({"prompt": "U", "completion": "A", "text": "x"}, "prompt_completion (prompt, completion)", [USER, ASSISTANT], 1),
    ({"question": "U", "answer": "A"}, "prompt_completion (question, answer)", [USER, ASSISTANT], 1),
    ({"prompt": [USER, ASSISTANT, USER], "completion": [ASSISTANT]}, "prompt_completion (prompt, completion)",
     [USER, ASSISTANT, USER, ASSISTANT], 3),
    ({"instruction": "U", "input": "", "output": "A"}, "alpaca (instruction, output)", [USER, ASSISTANT], 1),
    ({"instruction": "U", "input": None, "output": "A"}, "alpaca (instruction, output)", [USER, ASSISTANT], 1),
    ({"instruction": "U", "input": "I", "system": "S", "output": "A", "prompt": "", "completion": ""},
     "alpaca (instruction, output)", [SYSTEM, {"role": "user", "content": "U\nI"}, ASSISTANT], 2),
    ({"instruction": "U", "history": [["U", "A"]], "output": "A", "system": ""}, "alpaca (instruction, output)",
     [USER, ASSISTANT, USER, ASSISTANT], 0),
    ({"system_prompt": "S", "question": "U", "response": "A", "answer": "A"}, "prompt_completion (question, answer)",
     [SYSTEM, USER, ASSISTANT], 2),
    ({"conversations": [USER, ASSISTANT], "system": "S"}, "messages (conversations, role, content)",
     [SYSTEM, USER, ASSISTANT], 0),
    ({"conversations": [SYSTEM, USER, ASSISTANT], "system": "other"}, "messages (conversations, role, content)",
     [SYSTEM, USER, ASSISTANT], 0),
]  # fmt: skip


def record(content):
    return Record("a.jsonl:3", "a.jsonl:3", content)


def conversation(kept, form=None, notes=None, **keys):
    found = record(kept)
    return conversation_of(found, find_form(found, form, Keys(**keys)), Notes() if notes is None else notes)


@pytest.mark.parametrize(("content", "form", "messages", "learned_from"), RECORDS)
def test_the_form_of_a_record_is_found(content, form, messages, learned_from):
    assert str(find_form(record(content), None, Keys())) == form
    found = conversation(content)
    assert ([*found.messages], found.learned_from) == (messages, learned_from)
    assert found.learned == [n for n in range(learned_from, len(messages)) if messages[n]["role"] == "assistant"]
    is_text = all(isinstance(content.get(key), str) for key in form[:-1].split("(")[1].split(", "))
    assert found.is_pair == (is_text and "history" not in content)


def test_form_and_keys_may_be_named():
    both = {"messages": [USER, ASSISTANT], "prompt": "p", "completion": "c", "instruction": "i", "output": "o"}
    first = {
        form: conversation(both, form).messages[0]["content"] for form in ("messages", "prompt_completion", "alpaca")
    }
    assert first == {"messages": "U", "prompt_completion": "p", "alpaca": "i"}
    chat = {"dialogue": [{"who": "user", "says": "U"}, {"who": "assistant", "says": "A"}]}
    found = conversation(chat, messages="dialogue", role="who", content="says")
    assert [*found.messages] == [USER, ASSISTANT]
    found = find_form(record({"q": "U", "a": "A"}), None, Keys(prompt="q", completion="a"))
    assert str(found) == "prompt_completion (q, a)"
    assert str(find_form(record({"q": "U", "a": "A"}), "alpaca", Keys(prompt="q", completion="a"))) == "alpaca (q, a)"


def test_tools_and_further_keys_go_to_the_template():
    call = {"role": "assistant", "content": None, "tool_calls": [{"name": "add", "arguments": {"a": 1}}]}
    found = conversation({"messages": [USER, call, TOOL, ASSISTANT], "tools": [{"name": "add"}]})
    assert found.messages[1] == {**call, "content": ""}
    assert (found.tools, found.learned) == ([{"name": "add"}], [1, 3])
    for tools in ("add", [], None):
        assert conversation({"messages": [USER, ASSISTANT], "tools": tools}).tools is None
    assert conversation({"messages": [USER, {**call, "content": "A", "name": None}]}).messages[1] == {
        **call,
        "content": "A",
    }


def test_parts_of_a_content_are_put_together():
    parts = [{"type": "text", "text": "a"}, "b", {"type": "text", "text": "c"}]
    assert conversation({"messages": [USER, {"role": "assistant", "content": parts}]}).messages[1]["content"] == "abc"


@pytest.mark.parametrize(
    ("messages", "kind"),
    [
        ([SYSTEM, USER, ASSISTANT, USER, ASSISTANT], None),
        ([USER, ASSISTANT, TOOL, TOOL, ASSISTANT], None),
        ([USER, ASSISTANT, USER], "order"),
        ([USER], "order"),
        ([SYSTEM], "order"),
        ([ASSISTANT, USER, ASSISTANT], "order"),
        ([SYSTEM, ASSISTANT], "order"),
        ([USER, SYSTEM, ASSISTANT], "order"),
        ([USER, USER, ASSISTANT], "order"),
        ([USER, TOOL, ASSISTANT], "order"),
        ([USER, ASSISTANT, ASSISTANT], "order"),
        ([USER, {"role": "assistant", "content": " \n"}], "empty"),
        ([USER, {"role": "assistant", "content": ""}, USER, ASSISTANT], "empty"),
    ],
)
def test_roles_take_turns_and_the_assistant_says_something(messages, kind):
    notes = Notes()
    found = conversation({"messages": messages}, notes=notes)
    assert (found is None, dict(notes.counts)) == (kind is not None, {kind: 1} if kind else {})
    assert notes.first == ({kind: "a.jsonl:3"} if kind else {})


def test_a_mark_of_byte_order_inside_is_noted():
    notes = Notes()
    for _ in range(2):
        assert conversation({"prompt": "a\ufeff", "completion": "b"}, notes=notes) is not None
    assert notes.counts == {"marks": 2}


def test_prompt_and_completion_of_a_pair():
    found = conversation({"instruction": "U", "input": "I", "system": "S", "output": "A"})
    assert prompt_of(found) == ("S\nU\nI", "A")


def test_words_that_look_like_special_tokens_are_found():
    source = "{{ '<|a|>' + '<|b|>' }} {% if x <|length %}<|a|>"
    assert special_texts({"<|b|>": 1}, source) == ["<|a|>"]


ROLES = "system, developer, user, human, assistant, gpt, chatgpt, model, tool, function, observation"
ANY = "must have messages, conversations, prompt and completion, or instruction and output, got"
WRONG = [
    ({"a": 1}, f'{ANY} an object with "a"\n{OTHERS}'),
    ({}, f"{ANY} an empty object\n{OTHERS}"),
    ({"prompt": "a", "chosen": "b", "rejected": "c"}, f'{ANY} an object with "prompt", "chosen", "rejected"\n'
     "hint: `cstool data prepare preferences` makes a data set of them, for DPO"),
    ({"messages": [{"a": 1}]}, 'messages must have role and content, or from and value, got an object with "a"\n'
     "hint: --role_key and --content_key name other keys"),
    ({"messages": [USER, {"role": "assistant"}]}, "messages, message 2: must have role and content, got an object with "
     '"role"'),
    ({"messages": [{"role": ["bot"], "content": "a"}]},
     f"messages, message 1: role must be one of {ROLES}, got ['bot']"),
    ({"messages": [{"role": "bot", "content": "a"}]}, f"messages, message 1: role must be one of {ROLES}, got 'bot'"),
    ({"messages": [{"role": "user", "content": 3}]}, "messages, message 1: must be a text, got something else"),
    ({"messages": [{"role": "user", "content": [{"type": "image"}]}]},
     "messages, message 1: must be a text, got parts that are none\nhint: leave the record out"),
    ({"messages": [{"role": "user", "content": "\ud800"}]},
     "messages, message 1: must have whole characters, got half of one"),
    ({"prompt": "a", "completion": 1}, "completion: must be a text, got something else"),
    ({"instruction": "a", "input": 3, "output": "b"}, "input: must be a text, got something else"),
    ({"messages": [USER, ASSISTANT], "system": 3}, "system: must be a text, got something else"),
    ({"instruction": "a", "history": [["b"]], "output": "c"},
     "history: must be a list of pairs of texts, got something else"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "message"), WRONG)
def test_what_is_no_conversation_is_refused_with_its_place(error_of, content, message):
    assert error_of(conversation, content) == f"a.jsonl:3: {message}"


@pytest.mark.parametrize(
    ("form", "rule"),
    [
        ("messages", "a list of messages under messages or conversations or conversation"),
        ("sharegpt", "a list of messages under messages or conversations or conversation"),
        ("alpaca", "instruction and output"),
        ("prompt_completion", "prompt and completion"),
    ],
)
def test_a_form_that_a_record_does_not_have_is_refused(error_of, form, rule):
    content = {"messages": []} | ({"instruction": "a", "output": "b"} if form == "prompt_completion" else {})
    keys = ", ".join(f'"{key}"' for key in content)
    message = f"a.jsonl:3: must have {rule}, got an object with {keys}\n{OTHERS}"
    assert error_of(conversation, content, form) == message


def test_a_later_record_must_be_of_the_form_of_the_first(error_of):
    form = find_form(record({"prompt": "a", "completion": "b"}), None, Keys())
    message = 'a.jsonl:3: must have prompt, got an object with "a"\n' + OTHERS
    assert error_of(conversation_of, record({"a": 1}), form, Notes()) == message
    form = find_form(record({"messages": [USER]}), None, Keys())
    message = "a.jsonl:3: must have a list of messages under messages, got something else\n" + OTHERS
    assert error_of(conversation_of, record({"messages": "hello"}), form, Notes()) == message


TEXTS = st.sampled_from(["", " ", "a", "[", '[{"role": "user", "content": "a"}]', "\ud800", "user", "assistant"])
PARTS = st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}) | TEXTS | st.none(), max_size=2)
ANYTHING = st.none() | st.booleans() | st.integers(0, 3) | TEXTS | PARTS
FIELDS = [*"role content from value tool_calls".split()]
MESSAGES = st.lists(st.dictionaries(st.sampled_from(FIELDS), ANYTHING, min_size=1) | ANYTHING, max_size=4)
TURNS = st.lists(st.sampled_from([SYSTEM, USER, ASSISTANT, TOOL]), max_size=5)
VALUES = ANYTHING | MESSAGES | TURNS | st.lists(st.lists(ANYTHING, max_size=2), max_size=2)
KEYS = ["messages", "conversations", "prompt", "completion", "instruction", "input", "output", "system", "history"]


@given(
    content=st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=4),
    name=st.sampled_from([None, "messages", "sharegpt", "alpaca", "prompt_completion"]),
)
def test_anything_is_a_conversation_or_left_out_or_refused(content, name):
    notes = Notes()
    try:
        found = conversation(content, name, notes)
    except DataError as error:
        refused = error.message
    else:
        refused = None
    if refused is not None:
        assert refused.startswith("a.jsonl:3: ")
        return
    if found is None:
        assert notes.counts.total() == 1
    else:
        assert found.messages[-1]["role"] == "assistant"
        assert all(isinstance(message["content"], str) for message in found.messages)
        assert found.learned
