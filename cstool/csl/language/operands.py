"""Forms of call, and meaning, of each vector operation. The types that it computes with are in `fabric.operations`.

Source: SDK 2.10 documentation, "Builtins for DSD operations" (names); signatures as the `csl` dialect of xDSL lists
them (xdsl/dialects/csl/csl.py). A pointer in the place of the destination with a scalar behind it is a reduction:
`@fadds(&sum, sum, v)` leaves sum + v[0] + v[1] + ... there; without one, the last element is left there.
"""

from typing import NamedTuple


class Operand(NamedTuple):
    """One operand of one form.

    Args:
        kind: "vector" (a DSD, a DSR or a FIFO), "pointer" (to one scalar in SRAM) or "scalar"
        letter: its element: "H" any 16 bits (i16 or u16), "h" i16, "w" any 32 bits (i32 or u32), "e" f16, "f" f32
    """

    kind: str
    letter: str


Form = tuple[Operand, ...]
"""Operands in CSL's order: the destination, then the sources."""

_TABLE = """
add16 addc16 and16 or16 xor16 sar16 sll16 slr16 sub16: [H] [H] [H] | [H] H [H] | [H] [H] H | *H H [H]
clz ctz popcnt: [H] [H] | [H] H
dfilt: [w]
mov16: [H] [H] | *H [H] | [H] H
mov32: [w] [w] | *w [w] | [w] w
faddh fsubh fmulh fmaxh: [e] [e] [e] | [e] e [e] | [e] [e] e | *e e [e]
fadds fsubs fmuls fmaxs: [f] [f] [f] | [f] f [f] | [f] [f] f | *f f [f]
faddhs: [f] [f] [e] | [f] f [e] | [f] [f] e | *f f [e]
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
fnormh: *e e | [e] [e]
fnorms: *f f | [f] [f]
fscaleh: *e e h | [e] [e] h
fscales: *f f h | [f] [f] h
"""


_MEANINGS = """
add16 = a + b; addc16 = a + b + carry; sub16 = a - b; and16 = a & b; or16 = a | b; xor16 = a ^ b
sar16 = a >> b, signed; sll16 = a << b; slr16 = a >> b; clz = leading zeros of a; ctz = trailing zeros of a
popcnt = ones in a; mov16 = a, 16 bits; mov32 = a, 32 bits; fmovh = a, f16; fmovs = a, f32
faddh = a + b, f16; fadds = a + b, f32; faddhs = a + b, f32 from f16 and f32; fsubh = a - b, f16; fsubs = a - b, f32
fmulh = a * b, f16; fmuls = a * b, f32; fmaxh = max(a, b), f16; fmaxs = max(a, b), f32
fmach = a + b * c, f16; fmacs = a + b * c, f32; fmachs = a + b * c, f32 from f16
fabsh = |a|, f16; fabss = |a|, f32; fnegh = -a, f16; fnegs = -a, f32
fnormh = mantissa of a, f16; fnorms = mantissa of a, f32; fscaleh = a * 2**b, f16; fscales = a * 2**b, f32
fh2s = a, f16 to f32; fs2h = a, f32 to f16; fh2xp16 = a, f16 to i16; fs2xp16 = a, f32 to i16
dfilt = drops wavelets of a fabin_dsd until as many control wavelets came as it has elements
xp162fh = a, i16 to f16; xp162fs = a, i16 to f32
"""


def _operand(word: str) -> Operand:
    if word.startswith("["):
        return Operand("vector", word[1:-1])
    return Operand("pointer", word[1:]) if word.startswith("*") else Operand("scalar", word)


def _forms() -> dict[str, tuple[Form, ...]]:
    found = {}
    for line in _TABLE.strip().splitlines():
        names, _, forms = line.partition(":")
        parsed = tuple(tuple(map(_operand, form.split())) for form in forms.split("|"))
        found.update(dict.fromkeys(names.split(), parsed))
    return found


FORMS: dict[str, tuple[Form, ...]] = _forms()
"""All forms, by name of the operation without the @."""
MEANINGS = dict(pair.strip().split(" = ", 1) for line in _MEANINGS.strip().splitlines() for pair in line.split(";"))
"""Result of each operation in its destination, by name without the @; a, b, c are its sources."""

_WORDS = {"H": "i16 or u16", "h": "i16", "w": "i32 or u32", "e": "f16", "f": "f32"}
_POINTED = {"H": "*i16 or *u16", "h": "*i16", "w": "*i32 or *u32", "e": "*f16", "f": "*f32"}


def say(form: Form) -> str:
    """A form for messages: `DSD, DSD, f32`."""
    words = {"vector": lambda letter: "DSD", "pointer": _POINTED.__getitem__, "scalar": _WORDS.__getitem__}
    return ", ".join(words[operand.kind](operand.letter) for operand in form)
