"""Measurements of a server: prompts, forms, loads, errors, and the report."""

import json
from pathlib import Path

import pytest
import yaml

from cstool.foundation.errors import AnswerError
from cstool.serving.load import Load, Prompts, Round, Timed, shares
from tests.served_model import serving
from tests.stub_client import StubClient
from tests.unit.cli.conftest import cstool, folder  # noqa: F401

PARAMS = yaml.safe_load("""
trainer:
  init:
    model: {name: gpt2, vocab_size: 512, hidden_size: 64, num_heads: 2, num_hidden_layers: 2, filter_size: 128,
            max_position_embeddings: 64}
    optimizer: {AdamW: {learning_rate: 0.1}}
    loop: {max_steps: 5}
""")
"""without data, as of a converted model"""


def load_of(client, **prompts) -> Load:
    return Load(client, Prompts(**{"tokens": 20, "shared": 5, "seed": 1, **prompts}), {"model": "m"})


def test_prompts():
    prompts = Prompts(20, 5, seed=1, vocab_size=1000)
    first, second = prompts.ids(0), prompts.ids(1)
    assert (first[:5] == second[:5], first[5:] == second[5:]) == (True, False)
    assert (len(first), min(first) >= 3, max(first) > 255) == (20, True, True)
    assert first == Prompts(20, 5, seed=1, vocab_size=1000).ids(0) != Prompts(20, 5, seed=2, vocab_size=1000).ids(0)
    assert max(Prompts(500, 0, seed=1).ids(0)) == 255
    words = [prompts.text(number, 0.5).split() for number in range(2)]
    assert (len(words[0]), words[0][:2] == words[1][:2], words[0] == words[1]) == (10, True, False)


@pytest.mark.parametrize(
    ("takes", "form", "path"),
    [
        ((list,), "tokens", "/v1/completions"),
        ((str,), "texts", "/v1/completions"),
        ((type(None),), "chats", "/v1/chat/completions"),
    ],
)
def test_forms_of_prompts(takes, form, path):
    """A text has as many tokens as tokens would be, but for those of a template."""
    client = StubClient(takes=takes)
    load = load_of(client, tokens=100)
    load.find_form()
    answer = load.ask(7)
    assert (load.form, client.asked[-1][0]) == (form, path)
    assert 100 <= answer.prompt_tokens <= 112
    assert (answer.tokens, len(answer.pieces_s)) == (6, 3)


def test_a_server_that_takes_no_form():
    with pytest.raises(AnswerError, match="^no list$"):
        load_of(StubClient(takes=())).find_form()


def test_a_server_that_counts_no_tokens(monkeypatch):
    deltas = [{"role": "assistant", "content": ""}, {"content": "a"}, {"reasoning": "b"}, {}]
    monkeypatch.setattr(StubClient, "events", lambda *_: iter([{"choices": [{"delta": delta}]} for delta in deltas]))
    answer = load_of(StubClient()).ask(0)
    assert (answer.tokens, answer.prompt_tokens) == (2, None)


def test_a_round():
    answers = [Timed([0.1, 0.2, 0.4], 0.5, 3, 10), Timed([0.3], 0.5, 1, 10), Timed([], 1.0, 0, 10)]
    found = Round(None, 2.0, answers, {"busy": 1}, 2.0)
    assert found.first_token_s == {"median": 0.1, "p90": 0.3, "p99": 0.3}
    assert found.between_tokens_s == pytest.approx({"median": 0.1, "p90": 0.2, "p99": 0.2})
    assert found.tokens_per_s_each == pytest.approx(2 / 0.3)
    assert (found.tokens_per_s, found.requests_per_s, found.users) == (2.0, 1.5, 1)
    assert shares([]) == {}


def test_every_request_has_a_prompt_of_its_own():
    client, told = StubClient(), []
    load = load_of(client)
    assert len(load.closed(3, 10, told.append).answers) == len(load.open(1e6, 10, told.append).answers) == 10
    assert told == [*range(1, 11)] * 2
    assert len({tuple(document["prompt"]) for _, document in client.asked}) == 20


def test_who_stops_waits_for_no_answer(monkeypatch):
    """One request is refused, others would go on for ever."""
    refusals = iter([AnswerError("busy")])

    def events(path, document):
        if (refusal := next(refusals, None)) is not None:
            raise refusal
        while True:
            yield {}

    def interrupt(done):
        raise KeyboardInterrupt

    client = StubClient()
    monkeypatch.setattr(client, "events", events)
    with pytest.raises(KeyboardInterrupt):
        load_of(client).closed(4, 10, interrupt)


@pytest.fixture
def stub(monkeypatch) -> type[StubClient]:
    monkeypatch.setattr("cstool.serving.client.Client", StubClient)
    return StubClient


def test_a_server_is_measured(cstool, folder, checkpoint):  # noqa: F811
    with serving(checkpoint, served_model_name="m") as server:
        asked = ("--concurrency", "1,2", "--requests", "4", "--prompt_tokens", "20", "--max_tokens", "8")
        more = ("--params", checkpoint.parent, "--json", "found.json", "--seed", 5)
        outcome = cstool("bench", "serve", f"{server.url}/v1", *asked, *more)
    assert (outcome.code, outcome.stderr) == (0, "")
    lines = outcome.stdout.splitlines()
    where = f"m at {server.url}/v1: 20 tokens in, at most 8 out, prompts of random tokens, seed 5"
    assert lines[:2] == [where, "measured by this client; times are median / p90 / p99"]
    assert [line.split()[:6] for line in lines[4:6]] == [[n, "at", "a", "time", "4", "0"] for n in "12"]
    assert lines[7] == "the same model on 1 x cs3, 20 tokens in, 8 out: modelled, nothing of it is measured"
    document = json.loads(Path("found.json").read_text())
    assert document["prompts"] == "tokens"
    for found, concurrency in zip(document["measured"], (1, 2), strict=True):
        counts = [found[name] for name in ("concurrency", "answers", "errors", "tokens", "prompt_tokens")]
        assert counts == [concurrency, 4, {}, 32, 80]
        assert 0 < found["first_token_s"]["median"] <= found["whole_s"]["p99"] < found["seconds"]
    rounds = document["modelled"]["rounds"]
    assert [each["users"] for each in rounds] == [1, 2]
    assert rounds[0]["tokens_per_s_each"] == pytest.approx(1 / rounds[0]["token_s"])


def test_errors_are_counted(cstool, stub, monkeypatch):  # noqa: F811
    whole, errors = StubClient.events, iter(["busy", "gone", "busy", "d", "e"])

    def events(client, path, document):
        if next(numbers) > 8 and (message := next(errors, None)):
            raise AnswerError(message)
        return whole(client, path, document)

    numbers = iter(range(1000))
    monkeypatch.setattr(StubClient, "events", events)
    lines = cstool("bench", "serve", "URL", "--rate", "1000", "--requests", "6", "--concurrency", "8").stderr
    assert lines == "error: --concurrency: must be left out beside --rate, where it has no effect\n"
    lines = cstool("bench", "serve", "URL", "--concurrency", "8", "--requests", "6").stdout.splitlines()
    assert lines[4].split()[:6] == ["8", "at", "a", "time", "1", "5"]
    assert lines[5:] == [f"8 at a time: {text}" for text in ("2 x busy", "1 x d", "1 x e", "1 kind more")]


def test_an_open_loop_and_its_document(cstool, stub, folder):  # noqa: F811
    Path("gpt.yaml").write_text(yaml.safe_dump(PARAMS))
    asked = ("--rate", "500", "--requests", "3", "--prompt_tokens", "30", "--max_tokens", "30")
    document = json.loads(cstool("bench", "serve", "URL", *asked, "--params", "gpt.yaml", "--json", "-").stdout)
    (found,) = document["measured"]
    assert [found[name] for name in ("concurrency", "rate", "answers", "tokens")] == [None, 500.0, 3, 18]
    assert [document["modelled"][name] for name in ("prompt_tokens", "new_tokens")] == [30, 6]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--concurrency 1,x", "--concurrency: must be whole numbers above 0, of at most 1,024, got '1,x'"),
        ("--rate 0", "--rate: must be numbers above 0, of at most 10,000, got '0'"),
        ("--field temperature", "--field: must be NAME=JSON, got 'temperature'"),
        ("--shared_prefix 129", "--shared_prefix: must be 0 to 128, those of a prompt, got 129"),
        ("--json no/where.json", "--json no/where.json: cannot be written: No such file or directory"),
        (
            "--params gpt.yaml",
            "--prompt_tokens and --max_tokens: must be at most 64 together, the context of gpt.yaml, got 128 and 128",
        ),
    ],
)
def test_refusals(cstool, stub, folder, flags, message):  # noqa: F811
    Path("gpt.yaml").write_text(yaml.safe_dump(PARAMS))
    outcome = cstool("bench", "serve", "URL", *flags.split())
    assert (outcome.code, outcome.stderr.splitlines()[0]) == (2, f"error: {message}")


def test_servers_and_models_that_are_none(cstool, stub, monkeypatch):  # noqa: F811
    monkeypatch.setattr(StubClient, "models", lambda _: ["a", "b"])
    error = "error: --model: must be one of the server's, which are a, b\n"
    assert cstool("bench", "serve", "URL") == (2, "", error)
    monkeypatch.undo()
    error = "error: URL: must be as http://127.0.0.1:8000, got 'localhost'\n"
    assert cstool("bench", "serve", "localhost") == (2, "", error)
