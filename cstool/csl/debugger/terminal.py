"""The debugger at a terminal, or with commands from a file."""

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from cstool.csl.debugger import going, looks, memory
from cstool.csl.debugger.checkpoints import APART, Checkpoints
from cstool.csl.debugger.prompt import COMMANDS, execute
from cstool.csl.debugger.session import Go, Quit, Session
from cstool.csl.debugger.sources import Sources
from cstool.csl.sdk.artifact import read_program
from cstool.csl.sdk.journal import Journal
from cstool.foundation.errors import CstoolError

assert all((going, looks))  # their import fills the table of commands
PROMPT = "(debug) "
_AGAIN = ("step", "next", "event", "cycle", "continue", "back", "reverse-continue", "reverse-step", "reverse-event")
"""commands that an empty line does once more, at a terminal"""


class Screen:
    """The terminal of the first process, or lines of a file in its place.

    Args:
        lines: lines of a file; None: the terminal
        show: takes a line of output

    Attributes:
        completer: completes words of the terminal; None: it does not
        done, invalid: commands so far, and invalid ones among them
    """

    def __init__(self, lines: Iterator[str] | None, show: Callable[[str], None]) -> None:
        self._lines = lines
        self.show = show
        self._last = ""
        self.completer: Completer | None = None
        self.done = self.invalid = 0

    def failed(self) -> None:
        """Count an invalid command."""
        self.invalid += 1

    def line(self, chosen: int) -> str | None:
        """The next line, which is not empty; None: there are no more. `chosen`: index of the PE of the completer."""
        if self.completer is not None:
            self.completer.choose(chosen)
        while True:
            line = self._any_line()
            if line:
                self.done += 1
            if line != "":
                return line

    def _any_line(self) -> str | None:
        if self._lines is None:
            line = self._typed()
        else:
            found = next(self._lines, None)
            if found is None:
                return None
            line = found.partition("#")[0].strip()
            if line:
                self.show(PROMPT + line)
        if not line and self._lines is None:
            return self._last
        self._last = line if line.split(" ")[0] in _repeated() else ""
        return line

    def _typed(self) -> str:
        with suppress(ImportError):
            import readline

            readline.set_completer(self.completer)
            readline.set_completer_delims(" ")
            readline.parse_and_bind("tab: complete")
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return input(PROMPT).strip()
        except EOFError:
            self.show("quit")
            return "quit"
        except KeyboardInterrupt:
            self.show("")
            self._last = ""
            return ""
        finally:
            signal.signal(signal.SIGINT, before)


class Asking:
    """Asks for commands, and does them.

    Args:
        ask: lets the first process do something (`Checkpoints.ask`)
    """

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    def __call__(self, session: Session) -> Go:
        """The way on after a command; commands before it are done meanwhile.

        Raises:
            Quit: there are no more commands
        """
        while True:
            line = self._ask("line", session.chosen)
            if line is None:
                raise Quit
            try:
                go = execute(session, line)
            except CstoolError as error:
                self._ask("failed")
                session.show(f"error: {error.message}")
                if error.hint:
                    session.show(f"hint: {error.hint}")
                continue
            if go is not None:
                return go


def _repeated() -> set[str]:
    return {word for name in _AGAIN for word in (name, COMMANDS[name].short) if word}


class Completer:
    """Completes a word: commands first, behind them names of tasks, variables, files and commands.

    Args:
        session: the session
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._found: list[str] = []

    def choose(self, pe: int) -> None:
        """Complete names of a PE, by its index."""
        self._session.chosen = pe

    def __call__(self, text: str, state: int) -> str | None:
        """The `state`-th completion, as readline asks for it."""
        import readline

        if state == 0:
            found = self.completions(readline.get_line_buffer(), text)
            self._found = [f"{each} " for each in found] if len(found) == 1 and found[0][-1] != ":" else found
        return self._found[state] if state < len(self._found) else None

    def completions(self, line: str, word: str) -> list[str]:
        """The words that the last word of a line may become."""
        first, space, _ = line.lstrip().partition(" ")
        known: list[str] = list(COMMANDS)
        if space:
            session = self._session
            program = session.program.program_of(session.chosen)
            variables = [] if program is None else memory.variables(program)
            by_command = {
                "print": variables,
                "watch": variables,
                "break": [
                    *{*session.points.tasks(), *session.sources.functions},
                    *(f"{file}:" for file in session.sources.files),
                ],
                "source": [f"{file}:" for file in session.sources.files],
                "help": list(COMMANDS),
            }
            name = next((each.name for each in COMMANDS.values() if first in (each.name, each.short)), first)
            known = by_command.get(name, [])
        return sorted(each for each in known if each.startswith(word))


def debug_recorded(
    folder: Path, commands: Iterable[str] | None, show: Callable[[str], None], apart: int = APART
) -> tuple[int, int]:
    """Debug a recorded simulation until the user quits.

    Args:
        folder: its folder in the journal
        commands: lines of commands; None: they are typed at the terminal
        show: takes a line of output
        apart: moments between two checkpoints at least; 0: there are none

    Returns:
        number of commands, and of invalid ones among them
    Raises:
        CstoolError: the program is damaged
    """
    journal = Journal(folder)
    program = read_program(journal.program)
    screen = Screen(None if commands is None else iter(commands), show)
    checkpoints = Checkpoints(screen, apart)
    sources = Sources(program, Path(journal.settings.folder))
    asking, said = Asking(checkpoints.ask), partial(checkpoints.ask, "show")
    session = Session(journal, program, sources, asking, said, checkpoints)
    screen.completer = Completer(session)
    with _interrupts(session):
        session.run()
    return screen.done, screen.invalid


@contextmanager
def _interrupts(session: Session) -> Iterator[None]:
    """Let Ctrl-C stop a repetition, not the debugger."""

    def interrupt(number: int, frame: Any) -> None:
        if session.interrupted:  # it has not come to a moment since the last Ctrl-C
            signal.default_int_handler(number, frame)
        session.interrupted = True

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
