"""The command line: parse, call one verb, render.

Nothing else in the package prints, and nothing else turns errors into messages. Exit codes: 0 done; 1 ran, and the
answer is no; 2 an error that the user can fix; 130 interrupted. Modules that take long to import are imported inside
the verbs, so that `--help` and `--version` answer at once.
"""

from cstool.cli.app import main

__all__ = ["main"]
