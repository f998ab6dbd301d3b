"""What a release gives away is what is committed, and works where nothing else is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import cstool

PROJECT = Path(__file__).parents[2]


@pytest.mark.takes("builds an archive and a wheel, and installs the wheel into an environment of its own")
@pytest.mark.skipif(not (PROJECT / ".git").exists(), reason="a release is made of what is committed")
def test_the_recipe_builds_and_checks_a_release(tmp_path):
    done = subprocess.run(
        [PROJECT / ".ci" / "release", tmp_path / "dist"],
        # Modules are compiled when they are imported; to pip, no is yes here.
        env=os.environ | {"PYTHON": sys.executable, "PIP_NO_COMPILE": "no"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    name = f"cstool-{cstool.__version__}"
    assert sorted(path.name for path in (tmp_path / "dist").iterdir()) == [f"{name}-py3-none-any.whl", f"{name}.tar.gz"]
    tag = f"git tag -a v{cstool.__version__} -m 'cstool {cstool.__version__}'"
    assert done.stdout.splitlines()[-1].endswith(tag)


def test_a_folder_that_exists_is_left_alone(tmp_path):
    done = subprocess.run([PROJECT / ".ci" / "release", tmp_path], capture_output=True, text=True, check=False)
    message = f"error: {tmp_path}: must be a new folder, got one that exists\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", message)
