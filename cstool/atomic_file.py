"""Small files, and links, that are there whole, or as they were before; names of files that stay in their folder."""

import contextlib
import os
import secrets
from pathlib import Path
from typing import TypeGuard


def write_replacing(path: Path, content: str | bytes) -> None:
    """Write a small file, text in UTF-8, replacing one of that name in one go.

    Raises:
        OSError: it cannot be written; the old one is as it was
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(path.parent)


def replace_link(link: Path, target: Path) -> None:
    """Make a symbolic link, or replace one, in one go; where that cannot be, nothing happens.

    Links are for convenience: a copied folder may have folders in their place, a file system may have none.
    """
    aside = link.with_name(f".{link.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        aside.unlink(missing_ok=True)
        try:
            aside.symlink_to(target)
            aside.replace(link)
        finally:
            aside.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names of a folder, or raise OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_inner_name(name: object) -> TypeGuard[str]:
    """Say whether a name is that of a file in the folder, or in folders in it, and of no other."""
    return isinstance(name, str) and "\0" not in name and not {"", ".", ".."} & {*name.split("/")}


def is_plain_name(name: object) -> TypeGuard[str]:
    """Say whether a name is that of a file in the folder itself."""
    return is_inner_name(name) and "/" not in name
