"""All errors of a program that one run can find, for editors and other tools."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cstool.csl.language.compile import compile_csl
from cstool.csl.language.parse import parse
from cstool.csl.language.source import CslError, Keeper, Source, shown_path, text_of
from cstool.csl.language.tokens import tokenize


def check_csl(
    path: str | Path,
    arch: str = "wse3",
    *,
    import_paths: Sequence[str] = (),
    on_warning: Callable[[CslError], None] | None = None,
    **options: Any,
) -> list[CslError]:
    """Compile a program, and return its errors; none if it has none.

    A layout ends at its first error, and so does each `comptime` block and each function. After an error all files that
    others name are parsed, too.

    Args:
        path: the file with the layout block
        arch: "wse2" or "wse3"
        import_paths: folders where imported files are looked for after the importer's own
        on_warning: takes likely mistakes
        options: further arguments of `compile_csl`, by name

    Raises:
        CstoolError: there is no such file.
    """
    keeper = Keeper(keeps=True)
    with keeper.keeping():
        compile_csl(
            path,
            arch,
            import_paths=import_paths,
            say=lambda text: None,
            on_warning=on_warning,
            keeper=keeper,
            **options,
        )
    if keeper.errors:
        _parse_all(Path(path).resolve(), [Path(folder) for folder in import_paths], keeper)
    return keeper.errors


def _parse_all(first: Path, folders: Sequence[Path], keeper: Keeper) -> None:
    """Parse a file and all files that its strings name, theirs too."""
    pending, seen = [first], {first}
    while pending:
        path = pending.pop()
        shown = shown_path(str(path))
        with keeper.keeping():
            source = Source(shown, text_of(str(path), shown))
            for name in (token.text[1:-1] for token in tokenize(source)[0] if token.kind == "string"):
                for near in ((folder / name).resolve() for folder in [path.parent, *folders]):
                    if name.endswith(".csl") and near not in seen and near.is_file():
                        seen.add(near)
                        pending.append(near)
            parse(source)
