"""Suites that others wrote for their clients, against a server.

CSTOOL_CLIENTS names the Python of a virtual environment that has them; docs/testing.md says how to make one. The tests
of Cerebras's SDK are in its source archive alone: CSTOOL_CEREBRAS_SDK names the folder that it was unpacked into.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from tests.end_to_end.pages import typed
from tests.served_model import HERMES, Served, learn, serving

CLIENTS, SDK = "CSTOOL_CLIENTS", "CSTOOL_CEREBRAS_SDK"
SUITE_S = 900
REASONS = HERMES.replace("{%- for call", "{% if clear_thinking %}<think>{% endif %}{%- for call")
"""a chat template that takes all fields that the SDK's tests send"""
CHANGES: dict[str, Sequence[tuple[str, str]]] = {
    # The name of our model.
    "test_models.py": [('model_id="model_id"', 'model_id="m"')],
    "chat/test_completions.py": [
        ('model="gpt-oss-120b"', 'model="m"'),
        # Placeholders of a generator: no such kind of tool, no such token, no such parameter.
        ('"type": "type"', '"type": "function"'),
        ('logit_bias={"foo": 0}', 'logit_bias={"0": 0}'),
        ('model_parameters={"foo": "bar"}', "model_parameters={}"),
        # Two names of one number that differ; options of a stream without a stream.
        ("min_tokens=1000", "min_tokens=-1"),
        ('stream_options={"include_usage": True}', "stream_options=None"),
    ],
    "test_completions.py": [
        ('model="llama3.1-70b"', 'model="m"'),
        ('logit_bias={"foo": 0}', 'logit_bias={"0": 0}'),
        ('stream_options={"include_usage": True}', "stream_options=None"),
        # Fewer draws than answers.
        ("best_of=0", "best_of=1"),
        # Not done here.
        ('grammar_root="grammar_root",', ""),
        ('suffix="suffix",', ""),
        # The first token has no log probability: null, as of OpenAI, where the SDK's type has a number.
        ("echo=True", "echo=False"),
    ],
}
"""values of the SDK's tests that this server refuses, with those that it takes"""


def python_with(*modules: str) -> str:
    """The Python of the suites, which has modules; the test is skipped where there is none."""
    python = os.environ.get(CLIENTS, "")
    if not python:
        pytest.skip(f"{CLIENTS} names no Python with the suites")
    for module in modules:
        if subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode:
            pytest.skip(f"the Python of {CLIENTS} has no {module}")
    return python


def told(command: Sequence[str], *, folder: Path, more: Mapping[str, str] | None = None) -> str:
    """What a suite tells, which must succeed."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", **(more or {})}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SUITE_S)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("suites")
    (folder / "template.jinja").write_text(REASONS)
    with serving(learn(folder), served_model_name="m", chat_template=str(folder / "template.jinja")) as found:
        yield found


def test_the_tests_of_cerebras_sdk(server, tmp_path):
    python = python_with("cerebras.cloud.sdk", "pytest_asyncio", "respx", "httpx_aiohttp")
    if not os.environ.get(SDK):
        pytest.skip(f"{SDK} names no source archive of cerebras-cloud-sdk")
    shutil.copytree(Path(os.environ[SDK]) / "tests", tmp_path / "tests")
    for name, changes in CHANGES.items():
        file = tmp_path / "tests" / "api_resources" / name
        text = file.read_text()
        for old, new in changes:
            assert old in text, f"{name} has no {old}"
            text = text.replace(old, new)
        file.write_text(text)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = session\nlog_level = WARNING\n"
    )
    found = told(
        [python, "-m", "pytest", "tests/api_resources", "-q"], folder=tmp_path, more={"TEST_API_BASE_URL": server.url}
    )
    assert re.search(r"^85 passed in ", found, re.MULTILINE), found


@pytest.mark.takes("thousands of requests")
def test_schemathesis(server, tmp_path):
    # A description cannot say which fields go together, nor what a model cannot do: valid data may be refused.
    command = [python_with("schemathesis"), "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json", "-n", "20"]
    command += ["--continue-on-failure", "--seed", "1", "--exclude-checks", "positive_data_acceptance"]
    found = told([*command, "--request-timeout", "60"], folder=tmp_path)
    (made, passed) = re.findall(r"(\d+) generated, (\d+) passed", found)[0]
    assert made == passed
    assert int(made) > 1000


@pytest.mark.takes("PyTorch as a process")
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_lm_eval_has_the_same_results_over_http(family, tmp_path):
    python = python_with("lm_eval", "torch", "transformers", "accelerate", "aiohttp", "tenacity")
    script = str(Path(__file__).with_name("lm_eval_sides.py"))
    told([python, script, "make", family, "model"], folder=tmp_path)
    typed(f"cstool checkpoint convert {tmp_path / 'model'} {tmp_path / 'model.mdl'}")
    with serving(tmp_path / "model.mdl", served_model_name="m") as server:
        found = json.loads(
            told([python, script, "compare", "model", server.url, "m"], folder=tmp_path).splitlines()[-1]
        )
    assert max(found["loglikelihood"], found["rolling"]) < 1e-4
    assert (found["greedy_differ"], found["texts_differ"]) == (0, 0)
    # Both answers to "is it what would be chosen", and texts that are not all alike.
    assert 0 < found["greedy"][0] < found["requests"]
    assert found["different_texts"] > found["texts"] // 2
