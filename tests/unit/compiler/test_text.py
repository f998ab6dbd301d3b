"""A program in words: what each pass adds to it."""

from dataclasses import replace

from cstool.compiler.compile import PASSES, run_passes
from cstool.compiler.program import Program
from cstool.compiler.text import program_text
from tests.models import decoder
from tests.unit.compiler.programs import a_request, small_system


def test_what_each_pass_adds_in_words(golden):
    texts: list[tuple[str, str]] = []
    request = a_request(small_system(40, 60), execution_mode="auto")
    run_passes(
        Program(decoder(layers=2), request), PASSES, lambda name, program: texts.append((name, program_text(program)))
    )
    assert [name for name, _ in texts] == [each.__name__ for each in PASSES]
    parts, before = [], ""
    for name, text in texts:
        assert text.endswith("\n")
        assert not text.endswith("\n\n")
        known = set(before.splitlines())
        parts += [f"== {name}", *(line for line in text.splitlines() if line not in known)]
        before = text
    golden("compiler/print_after_all.txt", "\n".join(parts) + "\n")


def test_what_does_not_fit_in_words():
    request = a_request(replace(small_system(8, 8), memoryx=None))
    program = run_passes(Program(decoder(), request), PASSES[:-3], None)
    assert program_text(program).splitlines()[-1] == (
        "weight_streaming does not fit: small: must have MemoryX, from which weights are streamed, got a system without"
    )
