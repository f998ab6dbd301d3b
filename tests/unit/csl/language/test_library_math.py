"""<math> beside NumPy, at compile time and at run time."""

import math

import numpy as np
import pytest

from tests.unit.csl.language.many_pes import One

UNARY = {
    "ceil": np.ceil, "floor": np.floor, "trunc": np.trunc, "sqrt": np.sqrt, "exp": np.exp, "exp2": np.exp2,
    "log": np.log, "log2": np.log2, "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "abs": np.abs, "sign": np.sign,
}  # fmt: skip
LOOSE = {"inv": lambda x: 1 / x, "invsqrt": lambda x: 1 / np.sqrt(x), "sigmoid": lambda x: 1 / (1 + np.exp(-x))}
BINARY = {"pow": np.power, "fmod": np.fmod, "min": np.fmin, "max": np.fmax}
TESTS = {"isNaN": np.isnan, "isInf": np.isinf, "isFinite": np.isfinite, "signbit": np.signbit}
VALUES = [0.25, -0.25, 0.5, -0.75, 1.0, 2.0, 3.5, -3.5, 9.0]
EDGES = [0.0, -0.0, 1.0, -2.0, math.inf, -math.inf, math.nan, 3e-41]


def loop(names: list[str], letter: str, call: str) -> str:
    return "\n".join(f"  for (x) |value, i| {{ {name}_of[i] = math.{name}_{letter}({call}); }}" for name in names)


def arrays(names: list[str], letter: str, count: int) -> str:
    return "\n".join(f"var {name}_of = @zeros([{count}]{letter});" for name in names)


@pytest.mark.parametrize("letter", ["f32", "f16"])
def test_as_numpy(on_wse3: One, letter: str) -> None:
    names = [*UNARY, *LOOSE]
    x = np.array(VALUES, dtype={"f32": np.float32, "f16": np.float16}[letter])
    text = f'const math = @import_module("<math>");\nvar x = @zeros([{len(x)}]{letter});\n'
    text += arrays([*names, *BINARY], letter, len(x))
    body = loop(names, letter, "value") + "\n" + loop(list(BINARY), letter, "value, 1.5")
    found = on_wse3(f"{text}\n---\n{body}", x=x)
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        for name, function in UNARY.items():
            np.testing.assert_array_equal(found[f"{name}_of"], function(wide).astype(x.dtype), name)
        for name, function in LOOSE.items():
            np.testing.assert_allclose(found[f"{name}_of"], function(wide).astype(x.dtype), 3 * np.finfo(x.dtype).eps)
        for name, function in BINARY.items():
            np.testing.assert_array_equal(found[f"{name}_of"], function(wide, 1.5).astype(x.dtype), name)


def test_bits_of_floats(on_wse3: One) -> None:
    names = [*TESTS, "isNormal", "isSignaling"]
    x = np.array(EDGES, dtype=np.float32)
    text = f'const math = @import_module("<math>");\nvar x = @zeros([{len(x)}]f32);\n' + arrays(names, "u16", len(x))
    body = "\n".join(f"  for (x) |value, i| {{ {name}_of[i] = @as(u16, math.{name}(value)); }}" for name in names)
    found = on_wse3(f"{text}\n---\n{body}", x=x)
    for name, function in TESTS.items():
        assert found[f"{name}_of"].tolist() == function(x).astype(int).tolist(), name
    assert found["isNormal_of"].tolist() == [0, 0, 1, 1, 0, 0, 0, 0]
    assert not found["isSignaling_of"].any()


def test_generic_and_at_compile_time(on_wse3: One) -> None:
    found = on_wse3("""
const math = @import_module("<math>");
const two: f32 = 2.0;
const root = math.sqrt(two);
const half: f16 = math.exp_f16(0.5);
var f = @zeros([6]f32);
var h = @zeros([1]f16);
var i = @zeros([6]i16);
---
var x: f32 = -2.5;
var k: i16 = -7;
f[0] = root;
f[1] = math.abs(x);
f[2] = math.round(x);
f[3] = math.max(x, 1.0);
f[4] = math.fscale(x, 4);
f[5] = math.PI;
h[0] = half;
i[0] = math.abs(k);
i[1] = math.sign(k);
i[2] = math.min_i16(k, 3);
i[3] = math.max_i16(k, 3);
i[4] = math.sign_i16(0);
i[5] = @as(i16, math.max_u32(70000, 5) >> 16);
""")
    assert found["f"].tolist() == np.array([2**0.5, 2.5, -3, 1, -40, math.pi], np.float32).tolist()
    assert found["h"].tolist() == [float(np.float16(math.exp(0.5)))]
    assert found["i"].tolist() == [7, -1, -7, 3, 0, 1]
