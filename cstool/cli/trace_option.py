"""The option that names a trace file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunTraceOption = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Record what happens on this host in steps 2 to 4 of the run (in all, if it has fewer than 4) into a "
        ".json file that Perfetto opens.",
        show_default=False,
    ),
]
