"""Commands and groups of commands as this program shows them: its help in plain words."""

from __future__ import annotations

from typing import Any

from typer import TyperException
from typer.core import TyperArgument, TyperCommand, TyperGroup


class Command(TyperCommand):
    """A command whose arguments are shown by their names alone, and whose errors know it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments of the command."""
        try:
            return super().parse_args(ctx, args)
        except TyperException as error:
            # A missing value is reported without the command that misses it.
            if getattr(error, "ctx", ctx) is None:
                error.ctx = ctx  # type: ignore[attr-defined]
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line; an argument that must be given has no brackets."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write what may follow the command, arguments without their types."""
        arguments = [param for param in self.params if isinstance(param, TyperArgument)]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl([(argument.display_name_raw, argument.help or "") for argument in arguments])
        records = [param.get_help_record(ctx) for param in self.get_params(ctx) if param not in arguments]
        with formatter.section("Options"):
            formatter.write_dl([record for record in records if record is not None])


class Group(TyperGroup):
    """A group that shows the whole first paragraph of each of its commands."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer's signature
        """Write the commands of the group."""
        rows = [(name, _first_paragraph(command.help or "")) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _first_paragraph(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())
