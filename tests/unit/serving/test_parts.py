"""Thoughts, text and calls of tools, however the answer is cut into pieces."""

import pytest

from cstool.serving.parts import Divider
from cstool.serving.spelling import Piece, Spelled
from cstool.serving.tools import HERMES, LLAMA, MISTRAL, MISTRAL_ARGS
from tests.unit.serving.test_spelling import shown

CALL = '{"name": "f", "arguments": {"x": "ü"}}'


def divided(text: str, size: int, thinks="no", form=None, many=True) -> list[tuple[str, str]]:
    """Kind and text of each part; of calls their names and arguments."""
    divider, found = Divider(thinks, form, many=many), []
    cuts = [text[k : k + size] for k in range(0, len(text), size)]
    parts = []
    for place, cut in enumerate(cuts):
        parts += divider.take([Piece(cut, (Spelled(place, place, cut.encode()),))])
    for part in parts + divider.finish():
        value = part.text if part.kind != "calls" else " ".join(f"{call.name} {call.arguments}" for call in part.calls)
        assert part.kind == "calls" or shown(part.pieces) == (value, value.encode())
        if found and found[-1][0] == part.kind != "calls":
            found[-1] = part.kind, found[-1][1] + value
        else:
            found.append((part.kind, value))
    return found


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("text", "keys", "expected"),
    [
        ("abc", {}, [("content", "abc")]),
        ("<think>a<b</think>\n\nc", {}, [("content", "<think>a<b</think>\n\nc")]),
        ("<think>a<b</think>\n\nc", {"thinks": "may"}, [("reasoning", "a<b"), ("content", "c")]),
        ("a<b</think>c", {"thinks": "inside"}, [("reasoning", "a<b"), ("content", "c")]),
        ("a<b", {"thinks": "inside"}, [("reasoning", "a<b")]),
        (" <thin", {"thinks": "may"}, [("content", " <thin")]),
        (
            f"a<tool_call>\n{CALL}\n</tool_call>\n<tool_call>{CALL}</tool_call>",
            {"form": HERMES},
            [("content", "a"), ("calls", 'f {"x": "ü"}'), ("calls", 'f {"x": "ü"}')],
        ),
        (f"<tool_call>{CALL}</tool_call>" * 2, {"form": HERMES, "many": False}, [("calls", 'f {"x": "ü"}')]),
        ("a <tool", {"form": HERMES}, [("content", "a <tool")]),
        (f"[TOOL_CALLS] [{CALL}, {CALL}]", {"form": MISTRAL}, [("calls", 'f {"x": "ü"} f {"x": "ü"}')]),
        (
            'a[TOOL_CALLS]f[ARGS]{"x": "[TOOL_CALLS]"}[TOOL_CALLS]g[CALL_ID]abcdefghi[ARGS] {}',
            {"form": MISTRAL_ARGS},
            [("content", "a"), ("calls", 'f {"x": "[TOOL_CALLS]"} g {}')],
        ),
        ("[TOOL_CALLS]f[ARGS][1]", {"form": MISTRAL_ARGS}, [("content", "f[ARGS][1]")]),
        ("[TOOL_CALLS]f{}", {"form": MISTRAL_ARGS}, [("content", "f{}")]),
        (CALL.replace("arguments", "parameters"), {"form": LLAMA}, [("calls", 'f {"x": "ü"}')]),
        ('{"a": 1}', {"form": LLAMA}, [("content", '{"a": 1}')]),
        ("so {", {"form": LLAMA}, [("content", "so {")]),
    ],
)
def test_parts(text, size, keys, expected):
    assert divided(text, size, **keys) == expected
