"""The commands of the debugger: their names, and their help."""

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from inspect import cleandoc

from cstool.csl.debugger.session import Go, Quit, Session
from cstool.foundation.errors import CstoolError
from cstool.foundation.words import nearest

WIDTH = 100
"""columns of help"""
Do = Callable[[Session, str], Go | None]


@dataclass(frozen=True)
class Command:
    """A command.

    Args:
        name: its name
        usage: the words behind it
        text: its help: its first sentence in the list of all
        do: does it: returns the way on, or None if the session stays where it is
        short: another name
    """

    name: str
    usage: str
    text: str
    do: Do
    short: str = ""


COMMANDS: dict[str, Command] = {}
"""all commands, in the order of the help; modules add theirs"""


def command(usage: str, short: str = "") -> Callable[[Do], Do]:
    """Add a command: its name is the function's, its help the function's docstring."""

    def add(do: Do) -> Do:
        name = do.__name__.removesuffix("_").replace("_", "-")
        text = " ".join(cleandoc(do.__doc__ or "").split())
        COMMANDS[name] = Command(name, usage, text, do, short)
        return do

    return add


def command_named(word: str) -> Command:
    """A command by its name, its short name, or the beginning of its name.

    Raises:
        CstoolError: there is no such command, or several
    """
    for command in COMMANDS.values():
        if word in (command.name, command.short):
            return command
    begun = [name for name in COMMANDS if name.startswith(word)]
    if len(begun) == 1:
        return COMMANDS[begun[0]]
    if begun:
        raise CstoolError(f"{word}: must be one command, it begins {', '.join(begun)}")
    near = nearest(word, COMMANDS)
    raise CstoolError(
        f"{word}: must be a command, there is none of that name",
        f"did you mean {near}?" if near else "help lists them all",
    )


def execute(session: Session, line: str) -> Go | None:
    """Do a line of the user's; return the way on, None if the session stays where it is.

    Raises:
        CstoolError: the line is no command
    """
    word, _, rest = line.strip().partition(" ")
    return command_named(word).do(session, rest.strip())


def refuse_words(name: str, rest: str) -> None:
    """Refuse words behind a command that takes none."""
    if rest:
        raise CstoolError(f"{name}: must stand alone, got {rest}")


@command("[COMMAND]", "h")
def help_(session: Session, rest: str) -> None:
    """List all commands, or explain one."""
    if rest:
        command = command_named(rest)
        short = f"   (short: {command.short})" if command.short else ""
        session.show(f"{command.name} {command.usage}".rstrip() + short)
        session.show_all(textwrap.wrap(command.text, WIDTH))
        return
    for command in COMMANDS.values():
        first = command.text.partition(". ")[0].removesuffix(".")
        session.show(f"{command.name + ' ' + command.usage:34} {first}".rstrip())


@command("", "q")
def quit_(session: Session, rest: str) -> None:  # noqa: ARG001
    """End the debugger."""
    refuse_words("quit", rest)
    raise Quit


def commands_markdown() -> str:
    """The commands as a table of the page."""
    lines = ["| command | short | what it does |", "|---|---|---|"]
    for each in COMMANDS.values():
        short = f"`{each.short}`" if each.short else ""
        lines.append(f"| `{f'{each.name} {each.usage}'.rstrip()}` | {short} | {each.text} |")
    return "\n".join(lines)
