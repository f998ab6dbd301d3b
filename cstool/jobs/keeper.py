"""The keeper of one attempt: a small process that starts one stage of one job, watches it, records how it ended.

`python -m cstool.jobs.keeper JOBDIR STAGE ATTEMPT`, with an order as JSON on its standard input.
"""

from __future__ import annotations

import sys


def main(words: list[str] | None = None) -> int:
    """Keep an attempt and return the exit code of the keeper: 0 where the end was recorded, 3 where others are at it."""
    raise NotImplementedError(words)


if __name__ == "__main__":
    sys.exit(main())
