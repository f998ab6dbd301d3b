"""The vector operations of CSL: which operands each takes. The compiler checks by it, the engine reads elements by it.

Sources: SDK 2.10 documentation, "Builtins for DSD operations" (names); signatures as the `csl` dialect of xDSL lists
them (xdsl/dialects/csl/csl.py). A pointer in the place of the destination is a reduction where a scalar follows it:
`@fadds(&sum, sum, v)` leaves sum + v[0] + v[1] + ... there; else the last element is left there. That `@faddhs` and
`@fmachs` add what has 16 bits to an accumulator of 32 is documented; which operands of `@faddhs` have 16 bits between
DSDs is not: here both sources.
"""

from typing import NamedTuple


class Operand(NamedTuple):
    """What one operand of one form is.

    Args:
        kind: "vector" (a DSD, a DSR or a FIFO), "pointer" (to one scalar in SRAM) or "scalar"
        letter: its element: "H" any 16 bits (i16 or u16), "h" i16, "w" any 32 bits (i32 or u32), "e" f16, "f" f32
    """

    kind: str
    letter: str


Form = tuple[Operand, ...]
"""Operands in CSL's order: the destination, then the sources."""


class Operation(NamedTuple):
    """One operation.

    Args:
        name: without the @
        letters: elements of vectors, the destination's and then each source's
        forms: what it can be called with
    """

    name: str
    letters: str
    forms: tuple[Form, ...]


_TABLE = """
add16 addc16 and16 or16 xor16 sar16 sll16 slr16: [H] [H] [H] | [H] H [H] | [H] [H] H | *H H [H]
sub16: [H] [H] [H] | [H] [H] H | [H] H [H] | *H H [H]
clz ctz popcnt: [H] [H] | [H] H
mov16: [H] [H] | *H [H] | [H] H
mov32: [w] [w] | *w [w] | [w] w
faddh fsubh fmulh fmaxh: [e] [e] [e] | [e] e [e] | [e] [e] e | *e e [e]
fadds fsubs fmuls fmaxs: [f] [f] [f] | [f] f [f] | [f] [f] f | *f f [f]
faddhs: [f] [e] [e] | [f] e [e] | [f] [e] e | *f f [e]
fmach: [e] [e] [e] e
fmacs: [f] [f] [f] f
fmachs: [f] [f] [e] e
fabsh fnegh: [e] [e] | [e] e
fabss fnegs: [f] [f] | [f] f
fmovh: [e] [e] | *e [e] | [e] e
fmovs: [f] [f] | *f [f] | [f] f
fh2s: [f] [e] | [f] e
fs2h: [e] [f] | [e] f
fh2xp16: [h] [e] | [h] e | *h e
fs2xp16: [h] [f] | [h] f | *h f
xp162fh: [e] [h] | [e] h
xp162fs: [f] [h] | [f] h
fnormh: *e e
fnorms: *f f
fscaleh: *e e h
fscales: *f f h
"""


def _operand(word: str) -> Operand:
    if word.startswith("["):
        return Operand("vector", word[1:-1])
    return Operand("pointer", word[1:]) if word.startswith("*") else Operand("scalar", word)


def _operations() -> dict[str, Operation]:
    found = {}
    for line in _TABLE.strip().splitlines():
        names, _, forms = line.partition(":")
        parsed = tuple(tuple(map(_operand, form.split())) for form in forms.split("|"))
        for name in names.split():
            found[name] = Operation(name, "".join(operand.letter for operand in parsed[0]), parsed)
    return found


OPERATIONS: dict[str, Operation] = _operations()
"""By name, without the @."""
