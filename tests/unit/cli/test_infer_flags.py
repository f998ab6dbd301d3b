"""Prompts as they are read from a file."""

import pytest

from cstool.inference.commands.infer_flags import _of_file


@pytest.mark.parametrize(
    ("name", "content", "prompts"),
    [
        ("a.txt", "\ufeffone\r\n\ufefftwo\n\n", ["one", "two"]),
        ("a.jsonl", '\ufeff{"prompt": "one"}\n\ufeff{"prompt": "two"}\n', ["one", "two"]),
    ],
)
def test_files_of_prompts_with_a_mark_of_their_encoding_may_be_joined(tmp_path, name, content, prompts):
    (tmp_path / name).write_text(content, newline="")
    assert [text for text, _ in _of_file(str(tmp_path / name))] == prompts
