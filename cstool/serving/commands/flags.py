"""Flags that `cstool serve` and `cstool chat` share."""

from typing import Annotated

from cstool.foundation.terminal.options import flag, option
from cstool.serving.verbs.serving import Precision

PrecisionFlag = Annotated[
    Precision | None,
    flag("--precision", "Weights of products, of 32, 16, 8 or 4 bits.", show_default="as trained"),
]
TokenizerFlag = Annotated[
    str | None,
    option("--tokenizer", "bytes|FILE", "Bytes, or a tokenizers JSON file.", show_default="the data set's"),
]
LanesFlag = Annotated[int | None, option("--lanes", "N", "Threads that compute.", show_default="one per core", min=1)]
