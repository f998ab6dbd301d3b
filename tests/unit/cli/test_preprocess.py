"""`cstool data preprocess`: what it says of a data set, and of a file with faults."""

import re

import pytest
import yaml

from tests.reference.preprocessing_cases import CASES, HOOKS, write_tokenizer


@pytest.fixture
def config(folder):
    """A file for pairs, and records of them."""
    case = CASES["cut pairs, keep_end"]
    write_tokenizer(folder / "tok", template=case["template"], begins=True)
    pairs = [("the man and the sea", "the end"), ("the man and the sea and the sky", "the end"), ("", "a")]
    lines = [f'{{"q": "{prompt}", "a": "{completion}"}}\n' for prompt, completion in pairs]
    (folder / "pairs.jsonl").write_text("".join(lines))
    sections = {
        "setup": {
            "data": {"source": "pairs.jsonl", "type": "local"},
            "mode": "finetuning",
            "output_dir": "out",
            "processes": 1,
        },
        "processing": {
            **case["processing"],
            "huggingface_tokenizer": "tok",
            "read_hook": HOOKS + case["hook"],
            "read_hook_kwargs": case["kwargs"],
        },
        "dataset": case["dataset"],
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(sections, sort_keys=False))
    return folder / "config.yaml"


def told(outcome, config):
    return re.sub(r"in \d+\.\d s", "in S s", outcome.said.replace(str(config.parent), "DIR")).splitlines()


def test_what_was_made_is_told(cstool, config):
    expected = [
        "DIR/out: prepared in S s",
        "Mode: finetuning, by prompt_completion_text_read_hook",
        "split  records  rows  tokens  learned  padding",
        "-            2     2      56       14     6.7%",
        "Tokenizer: DIR/out/tokenizer.json, 268 tokens",
        "Left out: 1 record with an empty text, the first at DIR/pairs.jsonl:3",
        "Cut: 1 record, the first at DIR/pairs.jsonl:2",
        "Note: setup.processes: accepted, no effect",
        "Note: dataset.truncate_to_msl.truncation_mode: accepted, no effect",
        "Warning: config.yaml:18: prompt_truncation_mode is not given, so keep_end is taken",
    ]
    assert told(cstool("data", "preprocess", "config.yaml"), config) == expected
    again = cstool("data", "preprocess", "config.yaml", "--json").document
    assert (again["already_prepared"], again["parts"]["train"]["records"]) == (True, 2)
    packed = cstool("data", "preprocess", "config.yaml", "--overwrite", "--set", "dataset.use_vsl=true")
    assert "Packed: a dataloader needs use_vsl: true" in told(packed, config)


def test_answers_without_an_end_are_warned_of(cstool, config):
    chat = f"processing.read_hook={HOOKS}prompt_completion_chat_read_hook"
    template = "dataset.chat_template=\"{% for m in messages %}{{ m['content'] }} {% endfor %}\""
    found = told(cstool("data", "preprocess", "config.yaml", "--set", chat, "--set", template), config)
    assert "Template: dataset.chat_template" in found
    assert found[-1] == (
        "Warning: in 2 records, the first at DIR/pairs.jsonl:1, the end of an answer is no special token, so a model "
        "may not stop; processing.end_of_turn_token names the end"
    )


def test_faults_of_the_file_have_lines(cstool, config):
    assert cstool("data", "preprocess", "config.yaml", "--set", "setup.mode=embedding_training").refusal == (
        "error: --set setup.mode=embedding_training: must be pretraining, finetuning, dpo or nlg, got "
        "'embedding_training'\n"
    )
