"""What a user reads when something is wrong, and how the process ends."""

from __future__ import annotations

import pytest

from cstool import errors
from cstool.errors import CstoolError, ParamsError

EXIT_CODES = {
    "CstoolError": 2,
    "ParamsError": 2,
    "DataError": 2,
    "CheckpointError": 2,
    "DamagedCheckpointError": 2,
    "StoreError": 2,
    "ClusterError": 2,
    "EstimateError": 2,
    "CompileError": 2,
    "ArtifactError": 2,
    "TraceError": 2,
    "InferenceError": 2,
    "NonFiniteError": 1,
    "Interrupted": 130,
}


def test_an_error_is_its_message() -> None:
    assert str(CstoolError("x.yaml:3: seed must be whole, got 1.5")) == "x.yaml:3: seed must be whole, got 1.5"


def test_the_hint_stands_on_a_line_of_its_own() -> None:
    assert str(CstoolError("x: must be even, got 3", "2 and 4 are the nearest")) == (
        "x: must be even, got 3\nhint: 2 and 4 are the nearest"
    )


def test_message_and_hint_can_be_had_apart() -> None:
    error = CstoolError("x: must be even, got 3", "2 and 4 are the nearest")
    assert (error.message, error.hint) == ("x: must be even, got 3", "2 and 4 are the nearest")


def test_a_params_error_tells_all_problems_each_with_its_hint() -> None:
    problems = [("x.yaml:1: first", None), ("x.yaml:2: second", "do this"), ("x.yaml:9: third", "do that")]
    assert str(ParamsError(problems)) == (
        "x.yaml:1: first\nx.yaml:2: second\nhint: do this\nx.yaml:9: third\nhint: do that"
    )


def test_a_params_error_keeps_its_problems() -> None:
    assert ParamsError([("first", None), ("second", "do this")]).problems == (("first", None), ("second", "do this"))


def test_every_error_is_a_cstool_error_with_the_exit_code_of_its_kind() -> None:
    found = {
        name: kind.exit_code
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, CstoolError)
    }
    assert found == EXIT_CODES


@pytest.mark.parametrize("name", ["DataError", "CheckpointError", "ClusterError", "NonFiniteError", "Interrupted"])
def test_whoever_catches_cstool_errors_catches_this_one(name: str) -> None:
    with pytest.raises(CstoolError, match=r"^why$"):
        raise getattr(errors, name)("why")
