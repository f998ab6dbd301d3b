"""Chat templates: found, rendered as transformers does, and held within bounds."""

import json
from datetime import datetime

import pytest

from cstool.training.data import bounded_jinja
from cstool.training.data.chat_templates import ChatTemplate, find_template, special_tokens, usual_template
from cstool.training.data.tokenizer import ByteTokenizer, FileTokenizer
from tests.unit.training.data.chat_samples import messages, save_tokenizer

HELLO = messages("Hello", "Hi.", system="Be short.")


def rendered(source, told=HELLO, **how):
    return ChatTemplate(source, "a.jinja", {"eos_token": "</s>"}).render(told, **how)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% for m in messages %}\n  {% if loop.last %}\n{{ m.content }}\n{% endif %}\n{% endfor %}\n", "Hi.\n"),
        ("{{ messages | length }}{{ eos_token }}{{ bos_token }}{{ tools }}", "3</s>None"),
        ("{{ {'b': 'é<', 'a': [1]} | tojson }}", '{"b": "é<", "a": [1]}'),
        ("{{ {'a': 1} | tojson(indent=2) }}", '{\n  "a": 1\n}'),
        ("{% for n in range(9) %}{% if n == 1 %}{% continue %}{% endif %}{% if n == 3 %}{% break %}{% endif %}{{ n }}"
         "{% endfor %}", "02"),
        ("{% generation %}{{ messages[2]['content'] }}{% endgeneration %}", "Hi."),
        ("{% macro name(m) %}{{ m.role ~ ':' ~ m.content }}{% endmacro %}{{ name(messages[1]) }}", "user:Hello"),
        ("{{ 'a' * 3 + '%s' % 2 + (2 ** 3) | string }}", "aaa28"),
        ("{{ add_generation_prompt }}", "False"),
    ],
)  # fmt: skip
def test_a_template_is_rendered_as_transformers_does(source, text):
    assert rendered(source) == text


def test_the_assistants_text_can_be_marked():
    source = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    template = ChatTemplate(source, "a", {})
    assert template.has_generation
    assert template.render(HELLO[1:], marked=True) == "\ufdd0Hello\ufdd1\ufdd0Hi.\ufdd1"
    assert template.render(HELLO[1:]) == "HelloHi."
    assert template.render([], asks=True) == ""


def test_a_template_may_ask_the_time():
    template = ChatTemplate("{{ strftime_now('%Y-%m-%d') }}", "a", {})
    assert template.render(HELLO) == template.day
    assert abs((datetime.now() - datetime.fromisoformat(template.day)).days) <= 1
    assert ChatTemplate("{{ messages }}", "a", {}).day == ""


NO_END = "no end after 1,000 turns of its loops"
SIZE = "a text of more than 1,000 characters"


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", NO_END),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "no end of calls"),
        ("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(30) }}", NO_END),
        ("{% for a in range(30) %}{{ 'a' * 99 }}{% endfor %}", SIZE),
        ("{{ 'a' * 99999999999 }}", SIZE),
        ("{{ 99999999999 * [1] }}", SIZE),
        ("{% set n = namespace(t='aa') %}{% for a in range(60) %}{% set n.t = n.t ~ n.t %}{% endfor %}", SIZE),
        ("{% set n = namespace(t='aa') %}{% for a in range(60) %}{% set n.t = n.t + n.t %}{% endfor %}", SIZE),
        ("{{ 9 ** 99999 }}", "a power of large numbers"),
        ("{{ 9 ** 64 ** 64 ** 64 }}", "a power of large numbers"),
        ("{{ '%99999d' % 1 }}", "a number of five digits in a format"),
        ("{{ range(999999) }}", "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000)."),
        ("{{ raise_exception('only user and assistant') }}", "only user and assistant"),
        ("{{ messages[0].content.__class__.mro() }}", "access to attribute '__class__' of 'str' object is unsafe."),
        ("{{ messages.append(1) }}", "access to attribute 'append' of 'list' object is unsafe."),
        ("{{ nothing.of_it }}", "'nothing' is undefined"),
        ("{{ 1 + 'a' }}", "unsupported operand type(s) for +: 'int' and 'str'"),
        ("{{ messages['a']() }}", "'list object' has no attribute 'a'"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ lipsum(n=999999999) }}", "'lipsum' is undefined"),
        ("{{ 'a' | center(9999999999999) }}", "a text beyond all memory"),
        ("{% include 'passwords' %}", "no loader for this environment specified"),
    ],
)  # fmt: skip
def test_what_a_template_does_has_an_end(source, fault, monkeypatch, error_of):
    monkeypatch.setattr(bounded_jinja, "MOST_STEPS", 1000)
    monkeypatch.setattr(bounded_jinja, "MOST_CHARACTERS", 1000)
    assert error_of(rendered, source) == f"a.jinja: must write the conversation, got: {fault}"


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("{{ messages | random }}", ":1: must be a template of Jinja, got: No filter named 'random'."),
        ("\n{% if %}", ":2: must be a template of Jinja, got: Expected an expression, got 'end of statement block'"),
        ("{% generation %}", ":1: must be a template of Jinja, got: Unexpected end of template. Jinja was looking for "
         "the following tags: 'endgeneration'. The innermost block that needs to be closed is 'generation'."),
        ("{{ " + "(" * 9999, ": must be a template of Jinja, got one that is nested too deeply"),
    ],
)  # fmt: skip
def test_what_is_no_template_is_refused_with_its_line(source, fault, error_of):
    assert error_of(rendered, source) == f"a.jinja{fault}"


@pytest.fixture
def tokenizer(tmp_path):
    """Return a tokenizer, with a configuration and other files beside it."""

    def call(config=None, **files):
        if config is not None:
            (tmp_path / "tokenizer_config.json").write_text(config if isinstance(config, str) else json.dumps(config))
        for name, content in files.items():
            (tmp_path / f"{name}.jinja").write_bytes(content.encode() if isinstance(content, str) else content)
        return FileTokenizer(save_tokenizer(tmp_path / "tokenizer.json"))

    return call


def found(tokenizer, asked=None):
    template = find_template(asked, tokenizer, special_tokens(tokenizer))
    return None if template is None else template.source


def test_a_template_is_beside_its_tokenizer(tokenizer, tmp_path):
    assert found(tokenizer()) is None
    assert found(ByteTokenizer()) is None
    assert found(tokenizer({"chat_template": "a"})) == "a"
    assert (
        found(tokenizer({"chat_template": [{"name": "tools", "template": "t"}, {"name": "default", "template": "d"}]}))
        == "d"
    )
    assert found(tokenizer({"chat_template": [{"name": "tools", "template": "t"}]})) == "t"
    assert found(tokenizer({"chat_template": []})) is None
    assert found(tokenizer({"chat_template": "a"}, chat_template="b")) == "b"
    assert found(tokenizer(), "plain") is None
    (tmp_path / "mine").write_text("c")
    assert found(tokenizer(), str(tmp_path / "mine")) == "c"
    assert found(ByteTokenizer(), str(tmp_path / "mine")) == "c"


def test_special_tokens_come_from_the_configuration_or_the_tokenizer(tokenizer):
    special = special_tokens(tokenizer())
    assert special.named == {"eos_token": "</s>"}
    assert (special.ids["</s>"], special.ids["<|im_end|>"]) == (
        special.end,
        tokenizer().loaded.token_to_id("<|im_end|>"),
    )
    assert special.begin is None
    given = {"eos_token": {"content": "<|im_end|>"}, "bos_token": "<s>", "pad_token": "<none>", "unk_token": None}
    special = special_tokens(tokenizer(given))
    assert special.named == {"eos_token": "<|im_end|>", "bos_token": "<s>"}
    assert special.begin == special.ids["<s>"]
    special = special_tokens(ByteTokenizer())
    assert (special.named, special.ids, special.end) == ({"eos_token": "\0"}, {"\0": 0}, 0)


CHATML = (
    "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi.<|im_end|>\n"
)
MARKS = "System: Be short.\nUser: Hello\nAssistant: Hi.{}\n"


def test_the_template_of_ours_fits_the_tokenizer(tokenizer, tmp_path):
    for made, end, told in (
        (tokenizer(), "", CHATML),
        (ByteTokenizer(), "\0", MARKS),
        (FileTokenizer(save_tokenizer(tmp_path / "plain.json", special=[])), "", MARKS),
    ):
        template = usual_template(special_tokens(made))
        assert template.render(HELLO) == told.format(end)
        assert template.render(HELLO[:2], asks=True) == told.format("").partition("Hi.")[0].removesuffix(" ")
        assert find_template("cstool", made, special_tokens(made)).source == template.source


@pytest.mark.parametrize(
    ("config", "files", "asked", "message"),
    [
        ("[]", {}, None, "DIR/tokenizer_config.json: must be a JSON object, got something else"),
        ("{", {}, None, "DIR/tokenizer_config.json: must be a JSON object, got something else"),
        ({"chat_template": 3}, {}, None,
         "chat_template of DIR/tokenizer_config.json: must be a text, or a list of named texts, got something else"),
        ({"chat_template": [{"name": "a", "template": ""}, {"name": "b"}]}, {}, None,
         "chat_template of DIR/tokenizer_config.json: must have one named default, got a, b\n"
         "hint: write one of them into a file, and give that with --chat_template"),
        (None, {"chat_template": b"\xff"}, None, "DIR/chat_template.jinja: must be text, got something else"),
        (None, {}, "none.jinja",
         "--chat_template: must be cstool, plain or a file, found nothing at none.jinja\nhint: give another path"),
        (None, {}, ".", ".: must be readable, got: Is a directory"),
    ],
)  # fmt: skip
def test_files_without_a_template_are_refused(tokenizer, error_of, config, files, asked, message):
    assert error_of(lambda: found(tokenizer(config, **files), asked)) == message
