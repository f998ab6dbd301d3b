"""Ask a server for texts one by one, then many at a time in random company; count the answers that changed.

The server may be any with OpenAI's API that takes tokens as prompts, and gives log probabilities::

    cstool serve checkpoints/gpt_tiny:latest --draft lookup --kv_memory 8MiB
    python -m benchmarks.invariance http://127.0.0.1:8000 --requests 500 --together 1,4,16

Prompts are random tokens below `--vocabulary`; some begin alike, some repeat themselves, so that caches and drafts have
something to do. Half of the requests take the likeliest token, half draw with a seed of their own. An answer changed
if its text, or a log probability of it, is not the same as when the request was alone, to the last digit.

`--models all` spreads the requests over all models of the server, its adapters among them. `--answers FILE` keeps the
answers to requests that were alone; where there is such a file, they must be those of it, so that a server with other
threads, drafts or memory can be compared::

    python -m benchmarks.invariance http://127.0.0.1:8000 --models all --answers answers.json
"""

from __future__ import annotations

import argparse
import http.client
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

WAIT_S = 600.0


class Answer(NamedTuple):
    """The parts of an answer that must not change."""

    text: str
    logprobs: tuple[float, ...]


class Server:
    """A server with OpenAI's API.

    Args:
        url: such as http://127.0.0.1:8000
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._place = parts.hostname or "", parts.port or 80

    def models(self) -> list[str]:
        """Return the names of its models."""
        return [model["id"] for model in self._ask("GET", "/v1/models")["data"]]

    def _ask(self, method: str, path: str, document: Any = None) -> Any:
        connection = http.client.HTTPConnection(*self._place, timeout=WAIT_S)
        try:
            body = None if document is None else json.dumps(document)
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        if response.status != 200:
            raise SystemExit(f"{path}: {response.status} {content[:300].decode(errors='replace')}")
        return json.loads(content)

    def complete(self, request: dict[str, Any]) -> Answer:
        """Return the answer to a request."""
        return read_answer(self._ask("POST", "/v1/completions", {"logprobs": 1, **request}))


def read_answer(document: Any) -> Answer:
    """Return the answer in a response.

    llama.cpp writes log probabilities of a completion in the form of chats, and none of an answer without a token.
    """
    choice = document["choices"][0]
    found = choice["logprobs"] or {"content": []}
    logprobs = [token["logprob"] for token in found["content"]] if "content" in found else found["token_logprobs"]
    return Answer(choice["text"], tuple(logprobs))


def make_requests(
    count: int, vocabulary: int, longest: int, models: Sequence[str], seed: int = 1
) -> list[dict[str, Any]]:
    """Return random requests to several models, of up to `longest` tokens with their answers."""
    rng = np.random.default_rng(seed)
    begins = rng.integers(1, vocabulary, (4, longest * 11 // 20)).tolist()
    found = []
    for number in range(count):
        own = rng.integers(1, vocabulary, rng.integers(1, longest // 5)).tolist()
        prompt = [*begins[number % 4], *own] if number % 3 == 0 else own if number % 3 == 1 else own[:6] * 4
        drawn = {"temperature": 1.0, "top_p": 0.9} if number % 2 else {"temperature": 0}
        tokens = int(rng.integers(1, longest // 5))
        model = models[number // 6 % len(models)]
        found.append({"model": model, "prompt": prompt, "max_tokens": tokens, "seed": number, **drawn})
    return found


def count_changed(answers: Sequence[Answer], before: Sequence[Answer]) -> str:
    """Say how many answers are not those of before."""
    pairs = list(zip(answers, before, strict=True))
    texts = sum(answer.text != other.text for answer, other in pairs)
    changed = sum(answer != other for answer, other in pairs)
    return f"{texts} texts changed, {changed} answers with their log probabilities"


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--models", help="names, or all (default: the first that the server has)")
    parser.add_argument("--answers", type=Path, help="file that keeps, or has, the answers to requests that were alone")
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--together", default="1,4,16", help="requests at a time, of each round (default: 1,4,16)")
    parser.add_argument("--vocabulary", type=int, default=256, help="tokens of prompts are below (default: 256)")
    parser.add_argument("--longest", type=int, default=240, help="most tokens of a text (default: 240)")
    arguments = parser.parse_args()
    server = Server(arguments.url)
    there = server.models()
    models = there if arguments.models == "all" else arguments.models.split(",") if arguments.models else there[:1]
    requests = make_requests(arguments.requests, arguments.vocabulary, arguments.longest, models)
    alone = [server.complete(request) for request in requests]
    print(f"{sum(len(answer.logprobs) for answer in alone):,} tokens of {len(alone)} answers, one by one")
    if arguments.answers is not None and arguments.answers.exists():
        kept = json.loads(arguments.answers.read_text())
        print(f"beside {arguments.answers}: {count_changed(alone, [Answer(text, tuple(log)) for text, log in kept])}")
    elif arguments.answers is not None:
        arguments.answers.write_text(json.dumps(alone))
    rng = np.random.default_rng(2)
    for together in map(int, arguments.together.split(",")):
        order = rng.permutation(len(requests)).tolist()
        with ThreadPoolExecutor(together) as threads:
            answers = list(threads.map(lambda number: server.complete(requests[number]), order))
        print(f"{together:3} at a time: {count_changed(answers, [alone[number] for number in order])}")


if __name__ == "__main__":
    main()
