"""The file of errors that ranges of estimates come from, written from a validation.

    python -m cstool.plan.estimation.errors_file

writes it anew, which is due whenever a formula, a constant or a published result has changed.
"""

from collections.abc import Sequence

from cstool.foundation.atomic_file import write_replacing
from cstool.plan.estimation.bands import FILE, Known
from cstool.plan.estimation.comparison import compare, known_of

HEAD = """\
# How far the held-out results of published.yaml are off: what ranges of estimates come from (estimation/bands.py).
# Written by `python -m cstool.plan.estimation.errors_file` from a validation; not by hand.
#
# name: [kind, mode, is sparse, parameters, system, ln(published time / predicted time)]
"""


def errors_text(known: Sequence[Known]) -> str:
    """Contents of the file."""
    return HEAD + "".join(f"{each.name}: {_row(each)}\n" for each in known)


def _row(each: Known) -> str:
    case = each.case
    sparse = "true" if case.is_sparse else "false"
    return f'[{case.kind}, "{case.mode}", {sparse}, {case.parameters:.0f}, {case.system}, {each.error:.4f}]'


if __name__ == "__main__":
    write_replacing(FILE, errors_text(known_of(compare().predictions)))
