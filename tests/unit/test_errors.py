"""What a user reads when something is wrong, and how the process ends."""

from cstool import errors
from cstool.errors import CstoolError, ParamsError

WITH_2 = """
    CstoolError ParamsError DataError CheckpointError DamagedCheckpointError StoreError ClusterError EstimateError
    CompileError ArtifactError TraceError InferenceError
    ToldElsewhere
"""
EXIT_CODES = dict.fromkeys(WITH_2.split(), 2) | {"NonFiniteError": 1, "RankLostError": 1, "Interrupted": 130}


def test_an_error_is_its_message_with_the_hint_on_a_line_of_its_own() -> None:
    assert str(CstoolError("x.yaml:3: seed must be whole, got 1.5")) == "x.yaml:3: seed must be whole, got 1.5"
    error = CstoolError("x: must be even, got 3", "2 and 4 are the nearest")
    assert str(error) == "x: must be even, got 3\nhint: 2 and 4 are the nearest"
    assert (error.message, error.hint) == ("x: must be even, got 3", "2 and 4 are the nearest")


def test_a_params_error_tells_all_problems_each_with_its_hint() -> None:
    problems = (("x.yaml:1: first", None), ("x.yaml:2: second", "do this"), ("x.yaml:9: third", "do that"))
    error = ParamsError(problems)
    assert error.problems == problems
    assert str(error) == "x.yaml:1: first\nx.yaml:2: second\nhint: do this\nx.yaml:9: third\nhint: do that"


def test_every_error_is_a_cstool_error_with_the_exit_code_of_its_kind() -> None:
    found = {
        name: kind.exit_code
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, CstoolError)
    }
    assert found == EXIT_CODES
