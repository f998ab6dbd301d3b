"""The page about Python: its examples run as written, one after the other, and print what it says."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import cstool

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "python.md").read_text(encoding="utf-8")


def test_the_examples_print_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(PROJECT / "params", "params")
    shutil.copy(PROJECT / "LICENSE", "LICENSE")
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == PAGE.count("```python") == PAGE.count("```text")
    names: dict[str, Any] = {}
    for code, shown in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "docs/python.md", "exec"), names)  # noqa: S102
        assert printed.getvalue() == shown


def test_every_verb_is_on_the_page() -> None:
    verbs = [name for name in cstool.__all__ if name.islower() and name != "load_system"]
    assert [verb for verb in verbs if f"`{verb}`" not in PAGE] == []
