"""Structs without a type that only run time knows, handed to a function: its body stands in the place of the call."""

from pathlib import Path

import pytest

from cstool.csl.source import CslError
from tests.unit.csl.one_pe import OnePE

TEXT = """
var sums = @zeros([2]i16);
fn add(args: anytype, times: i16) void {
  for (@range(i16, times)) |_| { sums[0] += args.a * 2; }
  sums[1] = args.b;
}
fn give(args: anytype) i16 { return args.a; }
"""


def test_body_in_the_place_of_the_call(tmp_path: Path) -> None:
    body = "  var x: i16 = 5;\n  add(.{ .a = x, .b = 7 }, 3);\n  add(.{ .a = 1, .b = x }, x);"
    assert OnePE(tmp_path, TEXT, body)["sums"].tolist() == [40, 5]


def test_a_function_that_returns_something_does_not_take_one(tmp_path: Path) -> None:
    with pytest.raises(CslError) as caught:
        OnePE(tmp_path, TEXT, "  var x: i16 = 5;\n  sums[0] = give(.{ .a = x });")
    place = f"{tmp_path}/pe.csl:14:13"
    assert str(caught.value).splitlines()[0] == (
        f"{place}: give() is handed a struct without a type that is not known at compile time: "
        "only a function that returns nothing takes one"
    )
    assert str(caught.value).splitlines()[-1] == "hint: a struct type, or a parameter for each field"
