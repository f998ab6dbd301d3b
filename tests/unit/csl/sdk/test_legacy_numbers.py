"""Arithmetic of NumPy scalars in host scripts: as NumPy 1 had it, and otherwise as ever."""

import itertools
from typing import Any

import numpy as np
import pytest

from cstool.csl.sdk import legacy_numbers
from cstool.csl.sdk.legacy_numbers import compile_script, is_installed


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offer the calls for one test, and no import hook."""
    import builtins

    for name, call in legacy_numbers.CALLS.items():
        monkeypatch.setattr(builtins, name, call, raising=False)


def run(source: str, **names: Any) -> dict[str, Any]:
    exec(compile_script(source, "script.py"), names)
    return names


def test_time_stamps_of_16_bit_words() -> None:
    words = np.zeros(3).astype(np.uint16)
    words[:] = 0xFFFE, 0xFFFD, 0xFFFC
    stamp = run("t = words[0] + (words[1] << 16) + (words[2] << 32)", words=words)["t"]
    assert stamp == 0xFFFCFFFDFFFE
    assert isinstance(stamp, np.int64)
    # What NumPy 2 says by itself: if this fails, nothing of this is needed any more.
    assert words[1] << 16 == 0


@pytest.mark.parametrize("sign", ["+", "-", "*", "//", "%", "**", "<<", ">>", "&", "|", "^"])
def test_scalars_beside_integers_are_64_bits(sign: str) -> None:
    for kind in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32):
        result = run(f"a = x {sign} 3; b = 3 {sign} x", x=kind(5))
        assert (result["a"], result["b"]) == (eval(f"5 {sign} 3"), eval(f"3 {sign} 5"))
        assert [type(result[name]) for name in "ab"] == [np.int64, np.int64]


def test_augmented_names() -> None:
    assert run("x <<= 20\nx += 1", x=np.uint16(3))["x"] == (3 << 20) + 1
    names = run("y = x\nx += [2]", x=[1])
    assert names["x"] is names["y"]
    assert run("def f():\n    global x\n    x *= 70000\nf()", x=np.uint16(3))["x"] == 210000


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("r = '%d and %s' % (3, 'a')", "3 and a"),
        ("r = f'{1}' + 'b'", "1b"),
        ("r = [1] + [2]", [1, 2]),
        ("r = 7 / 2 + 1 << 1 if False else 2 ** 3 ** 2", 512),
        ("r = {1} | {2}", {1, 2}),
        ("match 1 + 2j:\n    case 1 + 2j: r = 'complex'", "complex"),
        ("def f(x: int | None = None) -> int | str: return 1\nr = f()", 1),
        ("from __future__ import annotations\nr = 1 + 1", 2),
    ],
)
def test_everything_else_is_as_ever(source: str, expected: object) -> None:
    assert run(source)["r"] == expected


def test_arrays_are_left_alone() -> None:
    words = np.array([1, 2], np.uint16)
    result = run("a = words << 16; b = words + 1; words_in = words; words += 1", words=words)
    assert result["a"].dtype == np.uint16
    assert list(result["a"]) == [0, 0]
    assert result["b"].dtype == np.uint16
    assert result["words"] is words
    assert list(words) == [2, 3]


@pytest.mark.parametrize(("left", "right"), [*itertools.permutations([np.uint16(3), np.float32(2), 1.5, True], 2)])
def test_other_scalars_are_left_alone(left: Any, right: Any) -> None:
    result = run("r = a + b", a=left, b=right)["r"]
    assert result == left + right
    assert type(result) is type(left + right)


def test_tracebacks_keep_their_places() -> None:
    with pytest.raises(TypeError) as caught:
        run("x = 1\ny = (x +\n     None)\n")
    assert caught.traceback[-2].lineno == 1


def test_installed_directories() -> None:
    assert is_installed(np.__path__[0])
    assert is_installed(legacy_numbers.__file__)
    assert not is_installed("/somewhere/else")
