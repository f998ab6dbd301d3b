"""The page about the appliance: its first steps, typed as they are written."""

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.pages import blocks, page, typed
from tests.end_to_end.worked import write_data, write_params

NAME = re.compile(r"wsjob-[a-z0-9]{22}")


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A folder with params and a data set, and an appliance that ends with the test."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="cstool_tests_") as folder, pytest.MonkeyPatch.context() as patch:
        home = Path(folder).resolve()
        write_params(home)
        write_data(home)
        patch.setenv("CSTOOL_APPLIANCE", str(home / "appliance"))
        os.chdir(home)
        try:
            yield home
        finally:
            typed("cstool appliance stop --cancel_jobs")
            os.chdir(before)


def plain(text: str, home: Path) -> list[str]:
    """The lines of what is shown, without names, times and widths, which are others each time."""
    text = NAME.sub("NAME", text.replace(str(home), "/home/me"))
    text = re.sub(r"process \d+ on \S+ since", "process N on HOST since", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r"\b(?:\d+h)?(?:\d+m)?\d+s\b", "SPAN", text)
    text = re.sub(r"\bcores? \d\b", "core N", text)
    return [re.sub(r" +", " ", line).rstrip() for line in text.splitlines()]


def test_the_first_steps_go_as_they_are_written(home):
    consoles = [block for block in blocks("appliance") if block.startswith("$ cstool") and "\nFolder" in block]
    consoles += [block for block in blocks("appliance") if block.startswith("$ cstool job wait")]
    assert len(consoles) == 2
    shown_names, real_names = [], []
    for command, shown in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", "".join(consoles), re.MULTILINE):
        for known, real in zip(shown_names, real_names, strict=True):
            command = command.replace(known, real)
        outcome = typed(command)
        assert (outcome.code, outcome.stderr) == (0, ""), command
        assert plain(outcome.stdout, home) == plain(shown, home), command
        if "job submit" in command:
            shown_names.append(NAME.findall(shown)[0])
            real_names.append(NAME.findall(outcome.stdout)[0])
    assert len(real_names) == 2


def test_what_else_is_typed_is_there(cstool):
    for command in re.findall(r"^\$ cstool (.*)$", page("appliance"), re.MULTILINE):
        words = command.split()
        shown = cstool(*words[: 2 if words[0] in ("job", "appliance") else 1], "--help").said
        flags = [word.partition("=")[0] for word in words if word.startswith("--")]
        assert [flag for flag in flags if flag not in shown] == []
