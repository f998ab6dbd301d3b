"""The flags that several commands of `cstool data prepare` share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from cstool.foundation.terminal.options import argument, flag, option
from cstool.foundation.terminal.screen import bars_in_bytes

OutputOption = Annotated[Path, option("--output", "DIR", "Folder of the data set.")]
TokenizerOption = Annotated[str, option("--tokenizer", "bytes|FILE", "Bytes, or a tokenizers JSON file; it is copied.")]
SourcesArgument = Annotated[
    list[Path] | None,
    argument("SOURCES", "Files and folders; if not given, the sources of Python's standard library."),
]
JsonlKeyOption = Annotated[
    str | None,
    option(
        "--jsonl_key",
        "KEY",
        "Key of the text in each line of a .jsonl or .ndjson.",
        show_default="text, content, ...",
    ),
]
CsvColumnOption = Annotated[
    str | None,
    option("--csv_column", "NAME", "Column of .csv and .tsv with the texts.", show_default="tables are not text"),
]
PackingOption = Annotated[
    Literal["stream", "documents"],
    flag("--packing", "Put documents back to back, or begin a sample with each and pad its end."),
]
ValFractionOption = Annotated[float, option("--val_fraction", "X", "Share of held-out text.")]
SeedOption = Annotated[int, option("--seed", "N", "Seed of the held-out part.")]
ProcessesOption = Annotated[int, option("--processes", "N", "Number of processes; the files do not depend on it.")]
OverwriteOption = Annotated[bool, flag("--overwrite", "Replace a different data set.")]


def prepared(prepare: Callable[..., Any], flags: Any) -> Any:
    """Return the summary of a data set, made by a verb as its flags say."""
    with bars_in_bytes() as progress:
        return prepare(**{**vars(flags), "sources": flags.sources or None}, progress=progress)
