"""Answers, whole and streamed: the same text, its log probabilities, and numbers of tokens."""

import json
import re

import pytest

from cstool.inference.passes import PASS_ROWS
from cstool.serving.embeddings import texts_together
from cstool.serving.tools import MISTRAL_ARGS

ALPHABET = "defghijklmnopqrstuvwxyz. abcdefghijklmnopqrstuvwxyz. "
NO_SPACE = {"seed": 1, "logit_bias": dict.fromkeys(("9", "10", "32"), -100)}
"""the model, which knows nothing of JSON, would fill its context with white space"""
WEATHER = {
    "type": "function",
    "function": {
        "name": "f",
        "parameters": {
            "type": "object",
            "properties": {"x": {"enum": ["p", "q"]}},
            "required": ["x"],
            "additionalProperties": False,
        },
    },
}


def test_a_completion(complete):
    answer = complete(max_tokens=20, temperature=0, seed=5).json
    (choice,) = answer["choices"]
    expected = {"index": 0, "text": ALPHABET[:20], "logprobs": None, "finish_reason": "length"}
    assert (choice, answer["object"], answer["seed"], answer["model"]) == (expected, "text_completion", 5, "m")
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (7, 20)
    assert {*answer["time_info"]} == {"queue_time", "prompt_time", "completion_time", "total_time", "created"}


@pytest.mark.parametrize("fields", [{"n": 3}, {"stop": "k"}, {"logprobs": 2, "echo": True, "return_raw_tokens": True}])
def test_a_stream_has_the_whole_answer(complete, fields):
    asked = {"max_tokens": 16, "seed": 7, "prompt": ["the abc", "p"], "temperature": 1.3, **fields}
    whole = complete(**asked).json
    *chunks, last = complete(**asked, stream=True, stream_options={"include_usage": True}).events
    assert (last["choices"], last["usage"]) == (
        [],
        {**whole["usage"], "prompt_tokens_details": last["usage"]["prompt_tokens_details"]},
    )
    for choice in whole["choices"]:
        parts = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == choice["index"]]
        assert "".join(part["text"] for part in parts) == choice["text"]
        assert parts[-1]["finish_reason"] == choice["finish_reason"]
        assert all(part["finish_reason"] is None for part in parts[:-1])
        if choice["logprobs"] is not None:
            for name, values in choice["logprobs"].items():
                assert [value for part in parts for value in part["logprobs"][name]] == values
            assert [token for part in parts for token in part["tokens"]] == choice["tokens"]
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in [*chunks, last]}) == 1


def test_log_probabilities(complete):
    (choice,) = complete(max_tokens=0, echo=True, logprobs=1).json["choices"]
    found = choice["logprobs"]
    assert (choice["text"], choice["finish_reason"], found["tokens"]) == ("the abc", "length", [*"the abc"])
    assert (found["text_offset"], found["token_logprobs"][0], found["top_logprobs"][0]) == ([*range(7)], None, None)
    # After "ab" the model knows well what follows.
    assert -0.1 < found["token_logprobs"][6] < 0
    assert found["top_logprobs"][6] == {"c": found["token_logprobs"][6]}
    (again,) = complete(max_tokens=1, echo=True, logprobs=1, prompt="the ab", temperature=0).json["choices"]
    assert again["logprobs"]["token_logprobs"] == found["token_logprobs"]


def test_draws_depend_on_the_seed_and_their_number_alone(complete):
    many = complete(n=4, seed=3, max_tokens=8, temperature=2).json["choices"]
    few = complete(n=2, seed=3, max_tokens=8, temperature=2).json["choices"]
    assert few == many[:2]
    assert len({choice["text"] for choice in many}) > 1
    best = complete(n=2, best_of=4, seed=3, max_tokens=8, temperature=2).json["choices"]
    assert {choice["text"] for choice in best} <= {choice["text"] for choice in many}
    unsaid = complete(max_tokens=8, temperature=2).json
    assert complete(max_tokens=8, temperature=2, seed=unsaid["seed"]).json["choices"] == unsaid["choices"]


def test_no_probability_is_that_of_the_likeliest_token(complete):
    likeliest = complete(max_tokens=8, temperature=0, prompt="q", seed=1).json["choices"]
    assert complete(max_tokens=8, temperature=2, top_p=0, prompt="q", seed=1).json["choices"] == likeliest
    assert complete(max_tokens=8, temperature=2, prompt="q", seed=1).json["choices"] != likeliest


def test_more_tokens_than_the_context_has_room_for(complete):
    for most in (1000, -1):
        answer = complete(max_tokens=most, temperature=0, prompt="a" * 250).json
        assert (answer["choices"][0]["finish_reason"], answer["usage"]["completion_tokens"]) == ("length", 6)


def test_bias_and_prompts_of_tokens(complete):
    answer = complete(prompt=[[97, 98], [120]], max_tokens=3, temperature=0, logit_bias={"33": 100}).json
    assert [choice["text"] for choice in answer["choices"]] == ["!!!", "!!!"]


def test_a_chat(chat):
    answer = chat(max_tokens=9, temperature=0, logprobs=True, top_logprobs=2).json
    (choice,) = answer["choices"]
    content, tokens = choice["message"]["content"], choice["logprobs"]["content"]
    assert (choice["message"]["role"], choice["finish_reason"], answer["object"]) == (
        "assistant",
        "length",
        "chat.completion",
    )
    assert bytes(byte for token in tokens for byte in token["bytes"]).decode() == content
    assert all(token["top_logprobs"][0]["logprob"] == token["logprob"] for token in tokens)
    first, *chunks = chat(max_tokens=9, temperature=0, stream=True).events
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == content
    assert (chunks[-1]["choices"][0]["delta"], chunks[-1]["choices"][0]["finish_reason"]) == ({}, "length")


def test_fields_of_the_vendor_that_ask_for_little_or_nothing(chat, complete):
    def tokens(**fields):
        return chat(max_tokens=1, **fields).json["usage"]["prompt_tokens"]

    plain = tokens()
    # The template has a mark for a model that is not to think.
    assert tokens(disable_reasoning=True) == tokens(reasoning_effort="none") == plain + len("<think></think>")
    assert tokens(disable_reasoning=False, model_parameters={}) == plain
    assert complete(reasoning_format="raw", max_tokens=1).status == 200


def test_json_of_a_schema(chat):
    pytest.importorskip("llguidance")
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}, "b": {"enum": ["u", "v"]}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    shape = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    for seed in range(3):
        (choice,) = chat(response_format=shape, **(NO_SPACE | {"seed": seed})).json["choices"]
        found = json.loads(choice["message"]["content"])
        assert (found["a"] in range(10), found["b"] in ("u", "v"), choice["finish_reason"]) == (True, True, "stop")


def test_calls_of_tools(chat):
    pytest.importorskip("llguidance")
    asked = {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "f"}}, **NO_SPACE}
    answer = chat(**asked)
    (choice,) = answer.json["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert (choice["message"]["content"], choice["finish_reason"], call["type"]) == (None, "tool_calls", "function")
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])["x"] in "pq") == ("f", True)
    chunks = chat(**asked, stream=True).events
    deltas = [delta for chunk in chunks for delta in chunk["choices"][0]["delta"].get("tool_calls", ())]
    head = deltas[0]
    assert (head["index"], head["type"], head["function"]) == (0, "function", {"name": "f", "arguments": ""})
    assert deltas[1:] == [{"index": 0, "function": {"arguments": call["function"]["arguments"]}}]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_calls_in_a_form_of_names_and_marks(chat, served, monkeypatch):
    pytest.importorskip("llguidance")
    monkeypatch.setattr(served, "form", MISTRAL_ARGS)
    asked = {"tools": [WEATHER], "tool_choice": "required", **NO_SPACE}
    for many in (False, True):
        (choice,) = chat(**asked, parallel_tool_calls=many, max_tokens=200).json["choices"]
        call, *others = choice["message"]["tool_calls"]
        assert (call["function"]["name"], json.loads(call["function"]["arguments"])["x"] in "pq") == ("f", True)
        assert not others or many


def test_a_prediction_changes_no_token(chat):
    plain = chat(max_tokens=30, temperature=0).json
    text = plain["choices"][0]["message"]["content"]
    found = chat(max_tokens=30, temperature=0, prediction={"type": "content", "content": text}).json
    assert found["choices"] == plain["choices"]
    assert found["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] > 5


def test_a_prediction_of_json_changes_no_token(chat):
    pytest.importorskip("llguidance")
    asked = {"response_format": {"type": "json_object"}, "max_tokens": 60, **NO_SPACE}
    plain = chat(**asked).json
    content = plain["choices"][0]["message"]["content"]
    for prediction in (content, content[:10] + "}" + content[10:]):
        found = chat(**asked, prediction={"type": "content", "content": prediction}).json
        assert found["choices"] == plain["choices"]
        assert found["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] > 5


def test_texts_go_through_the_model_together_while_there_is_memory():
    assert list(texts_together([4])) == [[0]]
    assert list(texts_together([PASS_ROWS, 2, 3 * PASS_ROWS, 1])) == [[3, 1], [0], [2]]
    groups = list(texts_together([1] * 700 + [2] * 300))
    assert [len(group) for group in groups] == [512, 256, 232]
    assert sorted(number for group in groups for number in group) == list(range(1000))


def test_vectors(ask):
    def vectors(**fields):
        return ask("/v1/embeddings", {"model": "m", **fields})

    many = vectors(input=["abc", "the abc"]).json
    assert (len(many["data"]), len(many["data"][0]["embedding"]), many["usage"]["total_tokens"]) == (2, 64, 10)
    assert vectors(input=[97, 98, 99]).json["data"][0] == many["data"][0]
    texts = ["abc" * n for n in (1, 60, 2, 1, 85, 7, 40, 41, 1, 3)]
    for pooling in ("mean", "last"):
        alone = [vectors(input=text, pooling=pooling).json["data"][0]["embedding"] for text in texts]
        assert [each["embedding"] for each in vectors(input=texts, pooling=pooling).json["data"]] == alone
    for fields, param, message in (
        ({"input": "a", "dimensions": 8}, "dimensions", "must be 64, the width of the model, or left out, got 8"),
        ({"input": "a", "pooling": "pooled"}, "pooling", "must be mean or last for this model, got pooled"),
        ({"input": [300]}, "input[0]", "tokens must be below the 256 of the model, got 300"),
        ({"input": "a" * 300}, "input[0]", "must have 1 to 256 tokens, got 300"),
    ):
        error = vectors(**fields).json["error"]
        assert (error["param"], error["message"]) == (param, f"{param}: {message}")


def test_other_paths(ask):
    (model,) = ask("/v1/models").json["data"]
    assert (model["id"], model["object"], model["max_model_len"]) == ("m", "model", 256)
    assert ask("/v1/models/m").json == ask("/public/v1/models/m").json == model
    assert ask("/v1/models/n").status == 404
    assert ask("/v1/tcp_warming").status == 200
    assert ask("/tokenize", {"prompt": "ab"}).json == {"tokens": [97, 98], "count": 2, "max_model_len": 256}
    assert ask("/detokenize", {"tokens": [97, 98]}).json == {"prompt": "ab"}
    assert ask("/health").json == {"status": "ok", "model": "m", "checkpoint": "as read"}
    assert "/v1/chat/completions" in ask("/openapi.json").json["paths"]
    lines = ask("/metrics").body.decode().splitlines()
    assert 'cstool_http_requests_total{path="/tokenize",status="200"} 1' in lines
    assert any(re.fullmatch(r"cstool_streamed_bytes_total [1-9]\d+", line) for line in lines)
    assert ask("/v2").json["error"]["message"] == "there is no /v2 here"
    answer = ask("/v1/completions")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"x-cerebras-version-patch": "3"}, "X-Cerebras-Version-Patch: must be 1 or 2, got '3'"),
        ({"queue_threshold": "50"}, "queue_threshold: must be left out, this server does not do it"),
    ],
)
def test_headers_of_the_vendor(ask, headers, message):
    answer = ask("/v1/completions", {"model": "m", "prompt": "a"}, headers=headers)
    assert (answer.status, answer.json["error"]["message"]) == (400, message)
