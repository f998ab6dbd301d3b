"""`cstool checkpoint merge`: adapters folded into a model, whose logits stay the same."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cstool.foundation.terminal.options import JsonOption, argument, flag
from cstool.foundation.terminal.render import print_json, print_line
from cstool.foundation.terminal.screen import bars_in_bytes
from cstool.foundation.words import bytes_text, counted
from cstool.inference.verbs.merging import merge_checkpoint
from cstool.model.commands.options import CheckpointArgument


def merge(
    source: CheckpointArgument,
    destination: Annotated[Path, argument("DEST", "A new file.")],
    no_compare: Annotated[
        bool, flag("--no_compare", "Do not compare logits: of a model that is larger than memory.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Fold the adapters of a checkpoint into the weights that they were trained beside: a model like any other.

    The new checkpoint has weights alone. Their base is looked for where it was, then beside the adapters.
    It gets its name once the logits after a random prompt are those of before, but for rounding.
    """
    with bars_in_bytes() as progress:
        made = merge_checkpoint(source, destination, compares=not no_compare, progress=progress)
    found = made.compared
    if as_json:
        compared = found if found is None or isinstance(found, str) else asdict(found)
        print_json({**made._asdict(), "compared": compared})
        return
    print_line(f"{made.source}: {counted(made.adapters, 'adapter')} folded into {made.path}, {bytes_text(made.bytes)}")
    if isinstance(found, str):
        print_line(f"Logits not compared: {found}")
    elif found is not None:
        print_line(
            f"Logits of {counted(found.tokens, 'random token')} before and after: differ by {found.difference:.1e} of "
            f"the largest, at most {found.bound:.1e} by rounding"
        )
