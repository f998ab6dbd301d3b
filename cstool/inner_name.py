"""Names of files that another file gives, which may come from anywhere: they do not leave its folder."""

from typing import TypeGuard


def is_inner_name(name: object) -> TypeGuard[str]:
    """Say whether a name is that of a file in the folder, or in folders in it, and of no other."""
    return isinstance(name, str) and "\0" not in name and not {"", ".", ".."} & {*name.split("/")}


def is_plain_name(name: object) -> TypeGuard[str]:
    """Say whether a name is that of a file in the folder itself."""
    return is_inner_name(name) and "/" not in name
