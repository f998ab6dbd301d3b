"""The engine: requests come and go from any thread; each gets its tokens and one end, whatever becomes of others."""

import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cstool.foundation.errors import ClusterError
from cstool.inference.drafts import LookedUp
from cstool.inference.sampling import Sampling
from cstool.inference.sequences import Finish, Made, TokenRequest
from cstool.inference.walk import Walks
from cstool.serving.engine import Engine, Full, Ticket
from cstool.serving.refusals import busy
from tests.models import FAMILIES
from tests.unit.inference.machines import made, one_token, walking

CAPACITY = 300
PAGE_BYTES = 2 * 2 * 4 * 128 * 8
"""of two layers: keys and values, 128 tokens of 8 numbers"""


@pytest.fixture(scope="module")
def walks() -> Iterator[Walks]:
    with walking(one_token(layers=2, sequence=CAPACITY, **FAMILIES["llama"]), sequences=1, capacity=CAPACITY) as (
        walk,
        _,
    ):
        yield Walks(walk.graph, walk.stream, walk.team)


@contextmanager
def engine(walks: Walks, **settings: Any) -> Iterator[Engine]:
    running = Engine(walks, capacity=CAPACITY, **settings)
    try:
        yield running
    finally:
        running.close()


class Client:
    """Asks, and waits for the end."""

    def __init__(self, engine: Engine, request: TokenRequest) -> None:
        self._made: queue.Queue[Made] = queue.Queue()
        self.ticket: Ticket = engine.submit(request, self._made.put)

    def next(self) -> Made:
        return self._made.get(timeout=30)

    def wait(self) -> tuple[list[int], str]:
        tokens: list[int] = []
        while True:
            one = self.next()
            tokens += one.tokens
            if one.finish_reason is not None:
                assert self._made.empty()
                return tokens, one.finish_reason


def prompts(count: int) -> list[list[int]]:
    rng = np.random.default_rng(4)
    return [rng.integers(0, 11, rng.integers(1, 200)).tolist() for _ in range(count)]


def test_each_of_many_clients_gets_the_tokens_that_it_gets_alone(walks):
    asked = [TokenRequest(0, tokens, 8, Sampling(k % 2 * 1.0), draws=k) for k, tokens in enumerate(prompts(12))]
    with engine(walks) as running:
        alone = [Client(running, request).wait() for request in asked]
        assert running.load()[:2] == (0, 0)
    # Three pages are for one long request, or for a few short ones.
    with engine(walks, max_batch=5, kv_bytes=4 * PAGE_BYTES, drafts=LookedUp()) as running:
        found: dict[int, Any] = {}

        def ask(k: int) -> None:
            found[k] = Client(running, asked[k]).wait()

        threads = [threading.Thread(target=ask, args=(k,)) for k in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        load = running.load()
    assert [found[k] for k in range(12)] == alone
    assert load.tokens == 12 * 8
    assert load.prompt_tokens == sum(len(request.tokens) for request in asked)
    assert (load.running, load.waiting, load.kv_pages, load.kv_pages_total) == (0, 0, 0, 4)


def until(told: threading.Event) -> Finish:
    """Hold the engine after a first token: it would be at the last one before anything else can happen."""

    def finish(tokens: Sequence[int]) -> str | None:
        assert len(tokens) == 1 or told.wait(30)
        return None

    return finish


def test_a_cancelled_request_ends_and_the_others_go_on(walks):
    told = threading.Event()
    with engine(walks, max_batch=1) as running:
        first = Client(running, TokenRequest(0, [1, 2], 200, Sampling(0.0), until(told)))
        waits = Client(running, TokenRequest(0, [1, 2], 3, Sampling(0.0)))
        last = Client(running, TokenRequest(0, [1, 2], 3, Sampling(0.0)))
        assert first.next().finish_reason is None
        waits.ticket.cancel()
        first.ticket.cancel()
        told.set()
        assert first.wait()[1] == "interrupted"
        assert waits.wait() == ([], "interrupted")
        assert last.wait()[1] == "length"
        assert running.load().kv_pages == 0


def test_a_full_queue_takes_no_more(walks):
    told = threading.Event()
    with engine(walks, max_batch=1, max_queue=1) as running:
        first = Client(running, TokenRequest(0, [1, 2], 250, Sampling(0.0), until(told)))
        first.next()
        second = Client(running, TokenRequest(0, [3], 1, Sampling(0.0)))
        with pytest.raises(Full, match="^the queue is full$") as full:
            Client(running, TokenRequest(0, [4], 1, Sampling(0.0)))
        assert not full.value.is_ending
        first.ticket.cancel()
        told.set()
        assert second.wait()[1] == "length"


def test_without_a_queue_as_many_are_taken_as_have_a_place(walks):
    told = threading.Event()
    with engine(walks, max_batch=2, max_queue=0) as running:
        clients = [Client(running, TokenRequest(0, [1, 2], 250, Sampling(0.0), until(told))) for _ in range(2)]
        with pytest.raises(Full, match="^the queue is full$"):
            Client(running, TokenRequest(0, [4], 1, Sampling(0.0)))
        told.set()
        for client in clients:
            assert client.wait()[1] == "length"
        assert Client(running, TokenRequest(0, [4], 1, Sampling(0.0))).wait()[1] == "length"


def test_a_full_queue_says_when_half_of_it_will_have_begun(walks, monkeypatch):
    now, first_ends, told = [100.0], threading.Event(), threading.Event()
    monkeypatch.setattr("cstool.serving.engine.time", SimpleNamespace(perf_counter=lambda: now[0]))
    with engine(walks, max_batch=1, max_queue=2) as running:

        def ask(finish: Finish) -> Client:
            return Client(running, TokenRequest(0, [1, 2], 250, Sampling(0.0), finish))

        def half_s() -> float:
            with pytest.raises(Full) as full:
                ask(until(told))
            return full.value.half_s

        first = ask(until(first_ends))
        first.next()
        others = [ask(until(told)) for _ in range(2)]
        assert half_s() == 0.0
        now[0] = 110.0
        # The one under way has taken 10 s; half of the queue and one more are two.
        assert half_s() == 20.0
        first_ends.set()
        others[0].next()
        others.append(ask(until(told)))
        now[0] = 114.0
        assert half_s() == 20.0
        now[0] = 125.0
        assert half_s() == 30.0
        told.set()
        for each in others:
            each.wait()


@pytest.mark.parametrize(("half_s", "told"), [(0.0, "1"), (2.1, "3"), (3600.0, "60")])
def test_a_client_is_told_to_come_back_within_a_minute(half_s, told):
    assert busy(is_ending=False, half_s=half_s).headers == {"Retry-After": told}


def test_it_ends_when_all_have_their_tokens_or_at_once(walks):
    running = Engine(walks, capacity=CAPACITY)
    client = Client(running, TokenRequest(0, [1, 2], 20, Sampling(0.0)))
    running.close(wait_s=30)
    assert client.wait()[1] == "length"
    with pytest.raises(Full, match="^the engine ends$"):
        Client(running, TokenRequest(0, [1], 1, Sampling(0.0)))
    running = Engine(walks, capacity=CAPACITY)
    client = Client(running, TokenRequest(0, [1, 2], 250, Sampling(0.0)))
    running.close()
    assert client.wait()[1] == "interrupted"


def test_what_goes_wrong_in_one_request_ends_that_one(walks, caplog):
    def finish(tokens: Any) -> str | None:
        raise ZeroDivisionError(len(tokens))

    with engine(walks) as running:
        other = Client(running, TokenRequest(0, [1, 2], 30, Sampling(0.0)))
        wrong = Client(running, TokenRequest(0, [1, 2], 30, Sampling(0.0), finish))
        assert wrong.wait()[1] == "error"
        assert str(wrong.ticket.error) == "the request failed: ZeroDivisionError(1)"
        assert other.wait()[1] == "length"
    assert "A request failed." in caplog.text


def test_a_fault_of_the_engine_ends_all_requests(walks, caplog):
    with engine(walks, max_batch=1) as running:
        running._decoder.step = lambda: 1 / 0  # type: ignore[assignment]
        clients = [Client(running, TokenRequest(0, [1, 2], 30, Sampling(0.0))) for _ in range(2)]
        assert [client.wait() for client in clients] == [([], "error")] * 2
        assert str(clients[0].ticket.error) == "the engine failed: ZeroDivisionError('division by zero')"
        assert isinstance(running.failure, ZeroDivisionError)
        with pytest.raises(Full):
            Client(running, TokenRequest(0, [1], 1, Sampling(0.0)))


def test_a_request_counts_its_own_prediction_alone(walks):
    request = TokenRequest(0, [1, 2, 3] * 4, 60, Sampling(0.0))
    with engine(walks, drafts=LookedUp()) as running:
        plain = Client(running, request)
        tokens, _ = plain.wait()
        load = running.load()
        assert (load.accepted_tokens > 0, plain.ticket.accepted_tokens, plain.ticket.rejected_tokens) == (True, 0, 0)
        predicted = Client(running, replace(request, prediction=tokens[:40]))
        assert predicted.wait()[0] == tokens
        # Behind the prediction the text so far is looked at again.
        assert 30 < predicted.ticket.accepted_tokens <= 40


def test_memory_must_suffice_for_one_sequence(walks):
    with pytest.raises(ClusterError) as caught:
        Engine(walks, capacity=CAPACITY, kv_bytes=3 * PAGE_BYTES - 1)
    assert str(caught.value) == (
        "keys and values of one sequence of 300 tokens must fit --kv_memory (49,151 bytes), got 49,152 bytes\n"
        "hint: a smaller --context needs less"
    )


def test_the_tokens_are_those_of_a_walk(walks):
    (expected,) = made(walks.walk(1, CAPACITY), [[1, 2, 3]], 6)
    with engine(walks) as running:
        assert Client(running, TokenRequest(0, [1, 2, 3], 6, Sampling(0.0))).wait() == (expected, "length")
