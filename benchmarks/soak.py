"""A day of `cstool serve` in small: thousands of requests, many of them ill-behaved, and servers that are killed.

Run from the project's folder, with the extra "serve" installed::

    python -m benchmarks.soak --requests 20000 --seed 0

It trains a tiny model of bytes, serves it, and keeps the answers of the quiet server to `--known` requests. Then
threads send these at random, for whole answers or streams; others have wrong bodies, hang up, read slowly, write
slowly, or send half a request. Nothing is killed in the first part, whose last memory is compared with the one after
a thousand requests. In the second part servers are killed, by SIGTERM and SIGKILL in turn, and started again.

The program ends with 1 where there is a fault: an answer that is not the one of the quiet server, that is broken or
missing, an unexpected status, memory, files or threads that grow, pages that stay in use, or a wrong exit code.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from cstool.inference.memory import cache_bytes
from cstool.inference.pages import PAGE_TOKENS
from cstool.model.graphs import SampleForm, build_graph
from cstool.model.params import load_params
from cstool.training.data import prepare_text
from cstool.training.data.text_request import TextRequest

CONTEXT = 512
WAIT_S = 60.0
TAKEN_S = 0.25
"""time within which a server takes a request up"""
PAGES = 24
"""of keys and values: too few for all answers at a time, so that some give theirs back"""
WARM = 1000
"""requests before memory is measured first"""
GROWTH = 0.05
"""of memory, at most, from then to the end"""
KINDS = {
    "whole": 46,
    "stream": 20,
    "hangs up": 8,
    "hangs up in a stream": 8,
    "half a request": 4,
    "bad body": 7,
    "writes slowly": 2,
    "reads slowly": 2,
    "vectors": 3,
}
"""kinds of requests, and how often each comes [%]"""
TEXT = "abcdefghijklmnopqrstuvwxyz. " * 640
BAD: tuple[tuple[bytes, set[int]], ...] = (
    (b"", {400}),
    (b"{", {400}),
    (b'{"model": "m", "prompt": "a", "max_tokens": NaN}', {400}),
    (b'{"model": "m", "prompt": "a", "model": "m"}', {400}),
    (b'{"model": "n", "prompt": "a"}', {404}),
    (b'{"model": "m", "prompt": "a", "top_k": 3}', {400}),
    (b'{"model": "m", "prompt": [999]}', {400}),
    (b'{"model": "m", "prompt": "a", "n": 1000}', {400}),
    (json.dumps({"model": "m", "prompt": "a" * CONTEXT}).encode(), {400}),
    (b"\xff\xfe", {400}),
    (b"[" * 100_000, {400}),
    (b"x" * (2**24 + 1), {413}),
)
"""bodies of completions that are refused, and how"""


def make_checkpoint(folder: Path) -> Path:
    """Train a tiny model of bytes in a folder; return its checkpoint."""
    (folder / "text.txt").write_text(TEXT)
    prepare_text([folder / "text.txt"], folder / "text", TextRequest(64, val_fraction=0.1))
    model = {
        "name": "gpt3",
        "vocab_size": 256,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_heads": 2,
        "filter_size": 128,
        "max_position_embeddings": CONTEXT,
        "position_embedding_type": "rotary",
        "rotary_dim": 32,
    }
    adam = {"AdamW": {"betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "learning_rate": 3e-3}}
    loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(folder / "text" / "train"), "batch_size": 16}
    init = {
        "model_dir": str(folder / "model_dir"),
        "seed": 1,
        "model": model,
        "optimizer": adam,
        "loop": {"max_steps": 60},
        "checkpoint": {"steps": 60},
    }
    file = folder / "params.yaml"
    file.write_text(
        yaml.safe_dump({"trainer": {"init": init, "fit": {"train_dataloader": {**loader, "shuffle": True}}}})
    )
    log = folder / "train.log"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "cstool", "run", "--params", str(file), "--mode", "train"]
        if subprocess.run(command, stdout=out, stderr=out, check=False).returncode:
            raise SystemExit(log.read_text())
    return folder / "model_dir" / "checkpoint_60.mdl"


class State(NamedTuple):
    """Resources of a process."""

    memory: int
    """resident [bytes]"""
    files: int
    threads: int


class Server:
    """A process of `cstool serve`, ready to answer.

    Args:
        checkpoint: of the model
        log: file for its messages
    """

    def __init__(self, checkpoint: Path, log: Path) -> None:
        section = load_params(checkpoint.parent.parent / "params.yaml").model
        page_bytes = cache_bytes(build_graph(section, SampleForm(1, 1, targets=1)), 1, PAGE_TOKENS)
        flags = [
            "--port",
            "0",
            "--served_model_name",
            "m",
            "--draft",
            "lookup",
            "--max_batch",
            "16",
            "--max_queue",
            "12",
        ]
        flags += ["--kv_memory", f"{PAGES * page_bytes // 1024}KiB", "--lanes", "1"]
        self.signal: int | None = None
        """that it was told to end by"""
        self.ended_at = 0.0
        """when that was [s]"""
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cstool", "serve", str(checkpoint), *flags],
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if b"http://" in line:
                self.port = int(line.decode().split("http://")[1].split("/")[0].rpartition(":")[2])
                return
        raise SystemExit(log.read_text())

    def connect(self, receive_bytes: int | None = None) -> socket.socket:
        """Return a new connection.

        Args:
            receive_bytes: size of its buffer, where it is small
        """
        connection = socket.socket()
        connection.settimeout(WAIT_S)
        if receive_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.connect(("127.0.0.1", self.port))
        return connection

    def get(self, path: str) -> bytes:
        """Return the body of an answer, such as of /metrics."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            connection.request("GET", path)
            return connection.getresponse().read()
        finally:
            connection.close()

    def metrics(self) -> dict[str, float]:
        """Its numbers, by name."""
        lines = (line.rsplit(" ", 1) for line in self.get("/metrics").decode().splitlines() if line[0] != "#")
        return {name: float(value) for name, value in lines}

    def state(self) -> State:
        """Resources of the process now."""
        place = Path(f"/proc/{self.process.pid}")
        lines = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines())
        return State(int(lines["VmRSS"].split()[0]) * 1024, len(os.listdir(place / "fd")), int(lines["Threads"]))

    def rest(self) -> State:
        """Wait until it has nothing to do, and return its resources then; SystemExit if that does not come."""
        end = time.monotonic() + WAIT_S
        while True:
            found, state = self.metrics(), self.state()
            open_sockets = sum(
                os.path.basename(os.readlink(f"/proc/{self.process.pid}/fd/{name}")).startswith("socket:")
                for name in os.listdir(f"/proc/{self.process.pid}/fd")
                if os.path.lexists(f"/proc/{self.process.pid}/fd/{name}")
            )
            busy = {name: found[f"cstool_{name}"] for name in ("requests_running", "requests_waiting", "kv_pages_used")}
            # The loop has a pair of sockets of its own, beside the listener.
            if not any(busy.values()) and open_sockets <= 3:
                return state
            if time.monotonic() > end:
                raise SystemExit(f"the server has no rest: {busy}, {open_sockets} sockets")
            time.sleep(0.1)

    def end(self, number: int) -> int:
        """Send a signal; return the exit code."""
        self.signal, self.ended_at = number, time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(WAIT_S * 2)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


class Known(NamedTuple):
    """A request, and what is in its answer always."""

    path: str
    body: dict[str, Any]
    choices: list[dict[str, Any]]


def make_requests(count: int, seed: int) -> list[tuple[str, dict[str, Any]]]:
    """Return random requests of all sorts that have one answer each: paths and bodies."""
    rng = np.random.default_rng(seed)
    begins = ["".join(map(chr, rng.integers(97, 123, 300))) for _ in range(4)]
    found: list[tuple[str, dict[str, Any]]] = []
    for number in range(count):
        own = "".join(map(chr, rng.integers(97, 123, rng.integers(1, 60))))
        text = [begins[number % 4] + own, own, own[:6] * 4, "the abc"][int(rng.integers(4))]
        body: dict[str, Any] = {"model": "m", "seed": number, "max_tokens": int(rng.integers(1, 32))}
        body |= [{"temperature": 0}, {"temperature": 1.2, "top_p": 0.9}][int(rng.integers(2))]
        body |= [{}, {}, {"n": 3}, {"stop": "k"}, {"frequency_penalty": 0.5}, {"max_tokens": 120}][int(rng.integers(6))]
        if number % 3:
            body |= [{}, {"logprobs": 2}][int(rng.integers(2))]
            found.append(("/v1/completions", {**body, "prompt": text}))
            continue
        body |= [{}, {"logprobs": True}, {"prediction": {"type": "content", "content": TEXT[:60]}}][
            int(rng.integers(3))
        ]
        if rng.integers(8) == 0 and "stop" not in body:
            body["response_format"] = {"type": "json_object"}
        found.append(("/v1/chat/completions", {**body, "messages": [{"role": "user", "content": text}]}))
    return found


def of_events(content: bytes) -> list[dict[str, Any]]:
    """Return the choices of a stream, with index, text and reason of the end; ValueError if it is broken."""
    lines = [line for line in content.decode().split("\n\n") if line and not line.startswith(":")]
    if not lines or lines[-1] != "data: [DONE]":
        raise ValueError("the stream has no end")
    found: dict[int, dict[str, Any]] = {}
    for line in lines[:-1]:
        event = json.loads(line.removeprefix("data: "))
        if "error" in event:
            raise ValueError(event["error"]["message"])
        for choice in event["choices"]:
            one = found.setdefault(choice["index"], {"index": choice["index"], "text": "", "finish_reason": None})
            one["text"] += choice["text"] if "text" in choice else choice["delta"].get("content") or ""
            one["finish_reason"] = one["finish_reason"] or choice["finish_reason"]
    return [found[index] for index in sorted(found)]


def short(choices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the part of choices that streams have, too."""
    return [
        {
            "index": each["index"],
            "text": each["text"] if "text" in each else each["message"]["content"] or "",
            "finish_reason": each["finish_reason"],
        }
        for each in choices
    ]


class Cut(Exception):
    """The connection ended before the answer was whole.

    Args:
        is_begun: whether a part of it came
    """

    def __init__(self, *, is_begun: bool) -> None:
        super().__init__("the answer is cut")
        self.is_begun = is_begun


@dataclass
class Soak:
    """The clients, and what they have seen."""

    known: list[Known]
    server: Server
    vector: list[float]
    seed: int
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    sent: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, until: int, threads: int) -> None:
        """Let threads send requests until so many were sent in all."""
        workers = [
            threading.Thread(target=self._work, args=(random.Random(f"{self.seed} {until} {number}"), until))
            for number in range(threads)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def _work(self, draws: random.Random, until: int) -> None:
        while True:
            with self._lock:
                if self.sent >= until:
                    return
                self.sent += 1
            kind = draws.choices(list(KINDS), list(KINDS.values()))[0]
            server, began = self.server, time.monotonic()
            try:
                outcome = self._one(kind, server, draws)
            except (Cut, OSError) as error:
                is_begun = isinstance(error, Cut) and error.is_begun
                # A request that the server had before SIGTERM gets its answer; one on its way then may get none.
                is_late = server.signal == signal.SIGTERM and began > server.ended_at - TAKEN_S and not is_begun
                allowed = server.signal == signal.SIGKILL or is_late
                outcome = "ended with the server" if allowed else f"FAULT {error!r}"
                while self.server is server and server.signal is not None:
                    time.sleep(0.01)
            except Exception as error:
                outcome = f"FAULT {error!r}"
            self.note(kind, outcome)

    def note(self, kind: str, outcome: str) -> None:
        """Count what came of a request, or of anything else."""
        with self._lock:
            if outcome.startswith("FAULT"):
                self.faults.append(f"{kind}: {outcome[:300]}")
                outcome = "FAULT"
            self.seen[kind, outcome] += 1

    def _one(self, kind: str, server: Server, draws: random.Random) -> str:
        known = draws.choice(self.known)
        body, path = dict(known.body), known.path
        expected: set[int] = {200}
        if kind in ("stream", "hangs up in a stream", "reads slowly"):
            body["stream"] = True
        content = json.dumps(body).encode()
        if kind == "bad body":
            (content, expected), path = draws.choice(BAD), "/v1/completions"
        elif kind == "vectors":
            content, path = json.dumps({"model": "m", "input": "abc"}).encode(), "/v1/embeddings"
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        request = f"{head}Content-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode() + content
        connection = server.connect(4096 if kind == "reads slowly" else None)
        with contextlib.closing(connection):
            if kind == "half a request":
                connection.sendall(request[: draws.randrange(len(request))])
                time.sleep(draws.random() * 0.1)
                return "gone"
            try:
                for piece in _pieces(request, 8 if kind == "writes slowly" else 1):
                    connection.sendall(piece)
                    time.sleep(0.01 * (kind == "writes slowly"))
            except ConnectionError:
                # A server may refuse a body before all of it is there.
                if kind != "bad body":
                    raise
            if kind.startswith("hangs up"):
                if "stream" in kind:
                    connection.recv(draws.randrange(1, 2000))
                else:
                    time.sleep(draws.random() * 0.05)
                if draws.random() < 0.5:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return "gone"
            answer = _read(connection, (256, 0.001) if kind == "reads slowly" else (65536, 0.0))
        status, found = _parsed(answer, is_lost_allowed=kind == "bad body" and len(content) > 2**20)
        if status in expected and kind == "bad body":
            return "refused as it should be"
        if status == 429 or (status == 503 and server.signal == signal.SIGTERM):
            return f"{status}"
        if status != 200:
            return f"FAULT status {status}: {found[:200]!r}"
        if kind == "vectors":
            return "equal" if json.loads(found)["data"][0]["embedding"] == self.vector else "FAULT another vector"
        if body.get("stream"):
            choices, wanted = of_events(found), short(known.choices)
        else:
            choices, wanted = json.loads(found)["choices"], known.choices
        return "equal" if choices == wanted else f"FAULT got {choices}, not {wanted}"


def _pieces(content: bytes, count: int) -> Iterator[bytes]:
    size = -(-len(content) // count)
    for begin in range(0, len(content), size):
        yield content[begin : begin + size]


def _read(connection: socket.socket, pace: tuple[int, float]) -> bytes:
    """Read to the end, so many bytes at a time with a rest after each."""
    found = bytearray()
    try:
        while part := connection.recv(pace[0]):
            found += part
            time.sleep(pace[1])
    except ConnectionError:
        pass
    return bytes(found)


def _parsed(answer: bytes, *, is_lost_allowed: bool) -> tuple[int, bytes]:
    """Return status and body of an answer, or raise Cut.

    Args:
        is_lost_allowed: whether the answer may get lost: TCP drops it where a body is still on its way
    """
    head, mark, body = answer.partition(b"\r\n\r\n")
    if not mark:
        if is_lost_allowed:
            return 413, b""
        raise Cut(is_begun=bool(answer))
    lines = head.decode("latin-1").lower().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:])
    status = int(lines[0].split()[1])
    if headers.get("transfer-encoding") == "chunked":
        return status, _unchunked(body)
    if len(body) != int(headers["content-length"]):
        raise Cut(is_begun=True)
    return status, body


def _unchunked(body: bytes) -> bytes:
    found, place = bytearray(), 0
    while True:
        end = body.find(b"\r\n", place)
        if end < 0:
            raise Cut(is_begun=True)
        size = int(body[place:end], 16)
        if size == 0:
            return bytes(found)
        found += body[end + 2 : end + 2 + size]
        place = end + 4 + size


def main() -> int:
    """Run it, and print a table; return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=12, help="clients at a time (default: 12)")
    parser.add_argument("--known", type=int, default=200, help="requests whose answers are known (default: 200)")
    parser.add_argument("--kills", type=int, default=10, help="servers that are killed (default: 10)")
    arguments = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint, log = make_checkpoint(Path(folder)), Path(folder, "serve.log")
        soak = _soak(arguments, lambda: Server(checkpoint, log))
        noise = Counter(line for line in log.read_text().splitlines() if "Error" in line or "Traceback" in line)
    print(f"{soak.sent:,} requests, {time.monotonic() - began:.0f} s in all")
    for (kind, outcome), count in sorted(soak.seen.items()):
        print(f"  {kind:<24}{outcome:<26}{count:>7,}")
    for line, count in noise.most_common(5):
        print(f"  the server's log, {count:,} times: {line[:160]}")
    for fault in soak.faults[:10]:
        print(f"  {fault}")
    return int(bool(soak.faults or noise))


def _soak(arguments: argparse.Namespace, start: Callable[[], Server]) -> Soak:
    server = start()
    asker = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT_S)

    def ask(path: str, body: dict[str, Any]) -> Any:
        asker.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = asker.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{path} {body}: {answer.status} {content[:300]!r}")
        return json.loads(content)

    known = [Known(*each, ask(*each)["choices"]) for each in make_requests(arguments.known, arguments.seed)]
    vector = ask("/v1/embeddings", {"model": "m", "input": "abc"})["data"][0]["embedding"]
    asker.close()
    # The answers of the quiet server are those of a new one, too: nothing that it remembers counts.
    server.end(signal.SIGTERM)
    soak = Soak(known, start(), vector, arguments.seed)
    calm = max(WARM + 1, int(arguments.requests * 0.7))
    states = []
    for until in (WARM, *np.linspace(WARM, calm, 5, dtype=int)[1:].tolist()):
        soak.run(until, arguments.threads)
        states.append(soak.server.rest())
        print(f"after {until:>6,} requests: {states[-1].memory / 2**20:.1f} MiB, {states[-1][1:]} files and threads")
    first, last = states[0], states[-1]
    grows = last.memory > first.memory * (1 + GROWTH) or last.files > first.files or last.threads > first.threads
    soak.note("the server", f"FAULT {first} became {last}" if grows else "as large as before")
    numbers = soak.server.metrics()
    pages = [numbers[f"cstool_kv_pages{name}"] for name in ("_used", "_cached", "")]
    soak.note("the server", "FAULT pages" if pages[0] or pages[1] > pages[2] else "all pages free or kept")
    for name in ("preemptions", "cached_tokens", "drafted_tokens", "accepted_tokens"):
        print(f"  {name.replace('_', ' ')}: {numbers[f'cstool_{name}_total']:,.0f}")
    parts = np.linspace(calm, arguments.requests, arguments.kills + 2, dtype=int)[1:].tolist()
    killer = threading.Thread(target=_kill, args=(soak, parts[:-1], start))
    killer.start()
    soak.run(arguments.requests, arguments.threads)
    killer.join()
    soak.server.rest()
    code = soak.server.end(signal.SIGTERM)
    soak.note("SIGTERM", "exit code 0" if code == 0 else f"FAULT exit code {code}")
    return soak


def _kill(soak: Soak, places: list[int], start: Callable[[], Server]) -> None:
    """Kill the server after each of these numbers of requests, and start another one."""
    for turn, place in enumerate(places):
        while soak.sent < place:
            time.sleep(0.002)
        number, wanted = ((signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL))[turn % 2]
        code = soak.server.end(number)
        soak.note(number.name, f"exit code {wanted}" if code == wanted else f"FAULT exit code {code}")
        soak.server = start()


if __name__ == "__main__":
    sys.exit(main())
