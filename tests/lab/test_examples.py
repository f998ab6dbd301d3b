"""The scripts that a user's CI would have run as they are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "ci"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.sh") if path.name != "tiny.sh")


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_example_passes_and_leaves_nothing_behind(name, tmp_path):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [EXAMPLES / name],
        env={**os.environ, "PATH": path, "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert list(tmp_path.iterdir()) == []
