"""Compilation and runs for scripts for a cluster (`cerebras.sdk.client`); here all of it happens on this machine.

Names and arguments follow the vendor's reference (SDK 2.10 documentation, "SDK Appliance API Reference").
"""

import os
import shlex
import shutil
import subprocess
import sys
from contextlib import ExitStack, chdir
from pathlib import Path
from typing import Any, Self

from cstool.csl.sdk import cslc
from cstool.csl.sdk.client import SdkRuntimeError
from cstool.csl.sdk.runtime import SdkRuntime
from cstool.foundation.folders import temporary_folder

ADDRESS = "%CMADDR%"
"""placeholder of the wafer's address in the launcher's commands; there is none"""


class SdkCompiler:
    """Compiles with `cslc`. A context manager.

    Args:
        settings: the vendor's (resource_cpu, mgmt_namespace, ...): taken, and without effect
    """

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the context; there is nothing to release."""

    def compile(self, app_path: str, csl_main: str, options: str, out_path: str) -> str:
        """Compile a program.

        Args:
            app_path: the directory of its files
            csl_main: the file with the layout block, in that directory
            options: flags of `cslc`, as one text
            out_path: folder for the directory of the compiled program, which is named by -o

        Returns:
            path of the compiled program, for `SdkLauncher` and `SdkRuntime`

        Raises:
            SdkRuntimeError: it does not compile; the reason is on stderr
        """
        words, name = _without_output(shlex.split(options))
        target = Path(out_path).absolute() / name
        target.parent.mkdir(parents=True, exist_ok=True)
        code = _cslc([*words, "-o", str(target), csl_main], app_path)
        if code:
            raise SdkRuntimeError(f"compile: cslc ended with exit code {code}")
        return str(target)


class SdkLauncher:
    """Runs commands in a directory of their own, beside a copy of the compiled program. A context manager.

    Args:
        artifact_path: result of `SdkCompiler.compile`
        simulator: whether to simulate; there is nothing else
        settings: others of the vendor's: taken, and without effect
    """

    def __init__(self, artifact_path: str, *, simulator: bool = False, **settings: Any) -> None:
        _need_simulator(simulator)
        self.settings = settings
        self._program = Path(artifact_path)
        if not self._program.is_dir():
            raise SdkRuntimeError(f"{artifact_path}: must be the directory of a compiled program")
        self._folder: Path | None = None
        self._context = ExitStack()

    def __enter__(self) -> Self:
        self._folder = self._context.enter_context(temporary_folder("cstool-launch-"))
        shutil.copytree(self._program, self._folder / self._program.name)
        return self

    def __exit__(self, *error: object) -> None:
        self._folder = None
        self._context.close()

    def stage(self, path: str) -> None:
        """Copy a file or a directory to the directory of the commands."""
        source = Path(path)
        if not source.exists():
            raise SdkRuntimeError(f"stage: {path} must be there, it is not")
        target = self._place() / source.resolve().name
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copy2(source, target)

    def run(self, *commands: str) -> str:
        """Run commands of the shell, one after the other, until one fails.

        Returns:
            their output on stdout

        Raises:
            SdkRuntimeError: one ended with another exit code than 0
        """
        said = ""
        environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
        for command in commands:
            line = command.replace(f"--cmaddr {ADDRESS}", "").replace(f"--cmaddr={ADDRESS}", "").replace(ADDRESS, "''")
            done = subprocess.run(
                line, shell=True, cwd=self._place(), env=environment, stdout=subprocess.PIPE, text=True, check=False
            )
            said += done.stdout
            if done.returncode:
                raise SdkRuntimeError(f"run: exit code {done.returncode} of: {command}", report=said or None)
        return said

    def download_artifact(self, name: str, out_path: str) -> None:
        """Copy a file written by the commands to `out_path`: a file, or an existing directory."""
        source = self._place() / name
        if not source.is_file():
            raise SdkRuntimeError(f"download_artifact: {name} must be a file that a command wrote, it is not there")
        target = Path(out_path)
        if not target.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)

    def _place(self) -> Path:
        if self._folder is None:
            raise SdkRuntimeError("SdkLauncher: must be used in a with statement")
        return self._folder


class ClientRuntime(SdkRuntime):
    """An `SdkRuntime` whose program is loaded and runs for as long as a with statement.

    Args:
        artifact_path: result of `SdkCompiler.compile`
        simulator: whether to simulate; there is nothing else
        settings: as of `SdkRuntime`
    """

    def __init__(self, artifact_path: str, *, simulator: bool = False, **settings: Any) -> None:
        _need_simulator(simulator)
        super().__init__(artifact_path, **settings)


def _need_simulator(simulator: bool) -> None:
    if not simulator:
        raise SdkRuntimeError("simulator: must be True, programs are simulated here", "simulator=True")


def _without_output(words: list[str]) -> tuple[list[str], str]:
    """Flags without -o, and its value."""
    kept: list[str] = []
    name = "out"
    rest = iter(words)
    for word in rest:
        if word == "-o":
            name = next(rest, name)
        elif word.startswith("-o"):
            name = word[2:].removeprefix("=")
        else:
            kept.append(word)
    return kept, Path(name).name


def _cslc(words: list[str], folder: str) -> int:
    try:
        with chdir(folder):
            return cslc.main(words)
    except OSError as error:
        raise SdkRuntimeError(f"compile: {folder} must be a directory, got: {error.strerror}") from None
