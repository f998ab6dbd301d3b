"""What a command left, and what is asserted of one that refuses: its whole message, and that all is as it was."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple


class Outcome(NamedTuple):
    """What a command printed and returned."""

    code: int
    stdout: str
    stderr: str

    @property
    def said(self) -> str:
        """What it printed, of a command that had nothing to complain of."""
        assert (self.code, self.stderr) == (0, "")
        return self.stdout

    @property
    def document(self) -> Any:
        """What it printed as JSON, of a command that went well."""
        assert self.code == 0, self.stderr
        return json.loads(self.stdout)

    @property
    def refusal(self) -> str:
        """What is printed on stderr, of a command that printed nothing else."""
        assert (self.code, self.stdout) == (2, "")
        return self.stderr


def error(message: str, hint: str | None = None) -> str:
    return f"error: {message}\n" if hint is None else f"error: {message}\nhint: {hint}\n"


def kept(model_dir: Path) -> dict[str, bytes]:
    """Return the files of a model_dir beside logs and locks, by name."""
    files = model_dir.iterdir() if model_dir.is_dir() else ()
    links = ("latest_run.log", "performance.json")
    return {f.name: f.read_bytes() for f in files if f.is_file() and f.suffix != ".lock" and f.name not in links}


_OF_THE_MACHINE = (
    "WARNING:   Input starvation detected: ",
    "WARNING:   Products take bfloat16 operands, with float32 sums, by emulated: slower than float32 here",
)


def without_machine_warnings(stderr: str) -> list[str]:
    """Return what was logged but for warnings that depend on the machine: how busy it is, which instructions it has."""
    return [line for line in stderr.splitlines() if not any(text in line for text in _OF_THE_MACHINE)]


def rows(table: str) -> list[tuple[str, str]]:
    """Return what is typed or written in each row of a table, and the message that follows =>.

    Args:
        table: further lines of a message are indented by 4, or hints, what continues a line by 8
    """
    found = []
    for entry in re.split(r"\n(?=\S)(?!hint: )", table.strip()):
        written, _, message = entry.partition(" =>")
        lines = re.sub(r"\n {8}", " ", message).split("\n")
        found.append((written, "\n".join(line.strip() for line in lines).strip()))
    return found
