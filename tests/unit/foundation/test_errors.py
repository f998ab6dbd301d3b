"""What a user reads when something is wrong, and how the process ends."""

import errno

import pytest

from cstool.foundation import errors
from cstool.foundation.errors import CstoolError, ParamsError, fault_of

WITH_2 = """
    CstoolError ParamsError DataError CheckpointError DamagedCheckpointError StoreError ClusterError EstimateError
    CompileError ArtifactError TraceError InferenceError AnswerError
    ToldElsewhere
"""
EXIT_CODES = dict.fromkeys(WITH_2.split(), 2) | {"NonFiniteError": 1, "RankLostError": 1, "Interrupted": 130}


def test_an_error_is_its_message_with_the_hint_on_a_line_of_its_own() -> None:
    """What would be obeyed is shown."""
    assert str(CstoolError("x.yaml:3: seed must be whole, got 1.5")) == "x.yaml:3: seed must be whole, got 1.5"
    error = CstoolError("a\nerror: fake: b", "c\x1b[1m\nhint: d")
    assert (error.message, error.hint) == (r"a\nerror: fake: b", r"c\x1b[1m\nhint: d")
    assert str(error) == "a\\nerror: fake: b\nhint: c\\x1b[1m\\nhint: d"


def test_a_params_error_tells_all_problems_each_with_its_hint() -> None:
    error = ParamsError((("x.yaml:1: a\nb", None), ("x.yaml:2: second", "d\ne"), ("x.yaml:9: third", "do that")))
    assert error.problems == ((r"x.yaml:1: a\nb", None), ("x.yaml:2: second", r"d\ne"), ("x.yaml:9: third", "do that"))
    assert str(error) == "x.yaml:1: a\\nb\nx.yaml:2: second\nhint: d\\ne\nx.yaml:9: third\nhint: do that"


def test_every_error_is_a_cstool_error_with_the_exit_code_of_its_kind() -> None:
    found = {
        name: kind.exit_code
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, CstoolError)
    }
    assert found == EXIT_CODES


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (OSError(errno.ENAMETOOLONG, "File name too long", "xxx"),
         "xxx: cannot be read or written, got: File name too long"),
        (PermissionError(errno.EACCES, "Permission denied", b"a/b"),
         "a/b: cannot be read or written, got: Permission denied"),
        (OSError(errno.EIO, "Input/output error"), "a file or the output cannot be written: Input/output error"),
        (MemoryError("Unable to allocate 238. GiB"), "the memory of this machine does not suffice: Unable to allocate "
         "238. GiB\nhint: a smaller model, batch_size or max_sequence_length needs less"),
        (MemoryError(), "the memory of this machine does not suffice: there is no more\n"
         "hint: a smaller model, batch_size or max_sequence_length needs less"),
        (RuntimeError("can't start new thread"), "the system must let this process start another thread, it refuses\n"
         "hint: fewer --lanes or --processes need fewer; ulimit -u and ulimit -v say what is allowed"),
        (ImportError("libx.so: failed to map segment from shared object"), "a library does not fit the memory: "
         "libx.so: failed to map segment from shared object\nhint: ulimit -v says what is allowed"),
    ],
)  # fmt: skip
def test_what_the_machine_is_to_blame_for_is_a_message(fault, message):
    assert str(fault_of(fault)) == message


@pytest.mark.parametrize(
    "bug", [OSError("no number"), *(kind("x") for kind in (RuntimeError, ImportError, ValueError))]
)
def test_bugs_are_not(bug):
    assert fault_of(bug) is None
