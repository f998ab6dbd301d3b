"""Fields of requests: what each must be, and what is told where it is something else."""

from typing import Any

import pytest

CONTENTS = 'must be a text, or a list of {"type": "text", "text": TEXT}'
PROMPTS = "must be a text, a list of texts, a list of tokens, or a list of lists of tokens, none of them empty"
TEMPLATE = "the chat template"
WEATHER = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
ENDLESS = {
    "type": "function",
    "function": {
        "name": "f",
        "parameters": {"type": "object", "properties": {"again": {"$ref": "#"}}, "required": ["again"]},
    },
}
SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "x", "schema": {"type": "string", "minLength": 2, "maxLength": 1}},
}


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"temperature": 3}, "temperature", "must be at most 2, got 3"),
        ({"temperature": "1"}, "temperature", "must be a number, got '1'"),
        ({"temperature": True}, "temperature", "must be a number, got true"),
        ({"max_tokens": True}, "max_tokens", "must be a whole number, got true"),
        ({"max_tokens": 1.5}, "max_tokens", "must be a whole number, got 1.5"),
        ({"max_tokens": -2}, "max_tokens", "must be at least -1, got -2"),
        ({"top_p": -0.1}, "top_p", "must be at least 0, got -0.1"),
        ({"n": 0}, "n", "must be at least 1, got 0"),
        ({"seed": 2**63}, "seed", "must be below 9.22337e+18, got 9223372036854775808"),
        ({"stop": ""}, "stop", "must be a text of 1 to 1024 characters, or a list of at most 4 of them"),
        ({"stop": ["a"] * 5}, "stop", "must be a text of 1 to 1024 characters, or a list of at most 4 of them"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5", "must be at most 100, got 101"),
        ({"logit_bias": {"foo": 0}}, "logit_bias", "keys must be tokens, 0 to 255, got 'foo'"),
        ({"logit_bias": {"256": 0}}, "logit_bias", "keys must be tokens, 0 to 255, got '256'"),
        ({"frequency_penalty": -2.1}, "frequency_penalty", "must be at least -2, got -2.1"),
        ({"service_tier": "fast"}, "service_tier", "must be 'auto', 'default', 'flex' or 'priority', got 'fast'"),
        ({"stream": 1}, "stream", "must be true or false, got 1"),
        ({"stream_options": {}}, "stream_options", "must go with stream, got no stream"),
        ({"min_tokens": 9, "max_tokens": 4}, "min_tokens", "must be at most max_tokens, 4, got 9"),
        ({"prompt": []}, "prompt", PROMPTS),
        ({"prompt": [-1]}, "prompt", PROMPTS),
        ({"prompt": [True]}, "prompt", PROMPTS),
        ({"prompt": ["a", 1]}, "prompt", PROMPTS),
        ({"prompt": ""}, "prompt", "must have at least one token, got none"),
        (
            {"prompt": "\ud800"},
            "prompt",
            "the text must be made of whole characters, got half of one, '\\ud800', at 0",
        ),
        ({"prompt": [256]}, "prompt", "tokens must be below the 256 of the model, got 256"),
        ({"prompt": [[1], [300]]}, "prompt[1]", "tokens must be below the 256 of the model, got 300"),
        ({"prompt": "a" * 256}, "prompt", "must have fewer tokens than the context of the model, 256, got 256"),
        ({"suffix": "a"}, "suffix", "must be left out, this server does not do it"),
        ({"grammar_root": "a"}, "grammar_root", "must be left out, this server does not do it"),
        ({"reasoning_format": "hidden"}, "reasoning_format", "must be left out, this server does not do it"),
        ({"n": 3, "best_of": 2}, "best_of", "must be at least n, 3, got 2"),
        ({"best_of": 2, "stream": True}, "best_of", "must be n, 1, in a stream, got 2"),
        ({"prompt": ["a", "b"], "n": 65}, "n", "must be at most 128 answers in all, got 2 prompts of 65"),
        ({"logprobs": 21}, "logprobs", "must be at most 20, got 21"),
        ({"top_k": 4}, "top_k", "must not be there, there is no such field"),
    ],
)
def test_completions(complete, fields, param, message):
    assert_refused(complete(**fields), param, f"{param}: {message}")


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"messages": []}, "messages", "must have at least 1 of them, got a list of 0"),
        ({"messages": [{"role": "bot"}]}, "messages[0].role", None),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "must be given"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content", CONTENTS),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content", CONTENTS),
        (
            {"messages": [{"role": "assistant", "content": "a", "refusal": "b"}]},
            "messages[0].refusal",
            "must be null, got 'b'",
        ),
        ({"messages": [{"role": "assistant"}]}, "messages[0].content", "must be given where there are no tool_calls"),
        (
            {"messages": [{"role": "user", "content": "a", "tool_call_id": "b"}]},
            "messages[0].tool_call_id",
            "must be in a message of tool alone, got one of user",
        ),
        (
            {"messages": [{"role": "user", "content": "a", "b": 1}]},
            "messages[0].b",
            "must not be there, there is no such field",
        ),
        ({"top_logprobs": 2}, "top_logprobs", "must go with logprobs, got no logprobs"),
        (
            {"max_tokens": 2, "max_completion_tokens": 3},
            "max_tokens",
            "must be left out, or the same as max_completion_tokens, 3, got 2",
        ),
        ({"tools": [WEATHER, WEATHER]}, "tools", "must have names that differ"),
        ({"tool_choice": "required"}, "tool_choice", "must go with tools, got none"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "g"}}},
            "tool_choice",
            "must name one of the tools, got 'g'",
        ),
        (
            {"tool_choice": "maybe"},
            "tool_choice",
            'must be "none", "auto", "required", or {"type": "function", "function": {"name": NAME}}',
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "a b"}}]},
            "tools[0].function.name",
            "must be 1 to 64 letters, digits, _ or -, got 'a b'",
        ),
        (
            {"tools": [WEATHER], "response_format": {"type": "json_object"}},
            "response_format",
            "must be text where tools may be called",
        ),
        (
            {"response_format": SCHEMA},
            "response_format.json_schema.schema",
            "must be a JSON schema that texts can have, got: "
            "Unsatisfiable schema: minLength (2) is greater than maxLength (1)",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "#"}}}},
            "response_format.json_schema.schema",
            "must be a JSON schema that texts can have, got one that refers to itself without an end",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": []}}}},
            "response_format.json_schema.schema",
            "must be a JSON schema that texts can have, got: Unsatisfiable schema: anyOf is empty",
        ),
        (
            {"tools": [ENDLESS], "tool_choice": "required"},
            "tools[0].function.parameters",
            "must be a JSON schema that texts can have, got one that refers to itself without an end",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": False}}},
            "response_format.json_schema.schema",
            "must be an object, got false",
        ),
        (
            {"response_format": {"type": "json_object"}, "stop": "a"},
            "stop",
            "must be left out where the form of the answer is enforced",
        ),
        (
            {"response_format": {"type": "xml"}},
            "response_format",
            "must have a type of 'text', 'json_object', 'json_schema', got an object of 1",
        ),
        ({"clear_thinking": True}, "clear_thinking", None),
        (
            {"disable_reasoning": True, "reasoning_effort": "low"},
            "disable_reasoning",
            "must go with no reasoning_effort, got low",
        ),
        ({"model_parameters": {"a": 1}}, "model_parameters", "must be left out or empty, the model has none"),
    ],
)
def test_chats(chat, fields, param, message):
    if "schema" in str(fields) or fields.get("response_format") == {"type": "json_object"}:
        pytest.importorskip("llguidance")
    assert_refused(chat(**fields), param, None if message is None else f"{param}: {message}")


@pytest.mark.parametrize("name", ["model", "prompt"])
def test_fields_that_are_missing(ask, name):
    fields = {"model": "m", "prompt": "a"}
    del fields[name]
    assert_refused(ask("/v1/completions", fields), name, f"{name}: must be given")


def test_another_model(complete):
    answer = complete(model="gpt-5")
    error = {
        "message": "model: must be one of m, got 'gpt-5'",
        "type": "not_found_error",
        "param": "model",
        "code": "model_not_found",
    }
    assert (answer.status, answer.json) == (404, {"error": error})


def assert_refused(answer: Any, param: str, message: str | None) -> None:
    error = answer.json["error"]
    assert (answer.status, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert message is None or error["message"] == message


def test_a_schema_that_cannot_be_followed_to_its_end(chat):
    pytest.importorskip("llguidance")
    schema = {"type": "string", "pattern": "^a{1000000}$"}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    limit = "lexer error: too many expressions constructed"
    message = f"the form of the answer: must be one that llguidance can follow to its end, got: {limit}"
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": "invalid_schema"}
    answer = chat(response_format=form)
    assert (answer.status, answer.json) == (400, {"error": error})
    assert chat(response_format=form, stream=True).events[-1] == {"error": error}
