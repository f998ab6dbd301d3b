"""Let `python -m cstool` be the same as `cstool`."""

import sys

from cstool.cli import main

if __name__ == "__main__":
    sys.exit(main())
