"""The folder in which a data set is made, beside where it goes: kept when the work stops, renamed when it is done."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cstool.foundation.atomic_file import NoLocksError, is_named, lock_file, sync_folder, write_replacing
from cstool.foundation.errors import DataError
from cstool.training.data.record import RECORD, read_record

_LOCK = "lock"
_PLAN = "plan.json"


def make_whole(
    output: Path,
    digest: str,
    overwrite: bool,
    make: Callable[[Path], dict[str, Any]],
    *,
    needs: str = "digest",
    cuts: Sequence[int] = (),
    temporary: Sequence[str] = (),
) -> tuple[dict[str, Any], bool]:
    """Make a data set in a folder of its own, and put it in place; return its record, and whether it was there.

    Args:
        output: a folder that does not exist, is empty, or was made by this program
        digest: of all that the data set depends on
        overwrite: whether another data set made before is replaced
        make: make(folder) makes all files but the record, and returns that
        needs: a key that the record must have
        cuts: numbers that the files on the way to it depend on besides
        temporary: folders of these, which are removed in the end

    Raises:
        DataError: there is another one, something else, or no room; or another process prepares the same one
    """
    if (record := kept(output, digest, overwrite, needs)) is not None:
        return record, True
    try:
        with preparing(output) as partial:
            # Made by the process that had the folder before.
            if (record := kept(output, digest, overwrite, needs)) is not None:
                return record, True
            keep_plan(partial, [digest, *cuts])
            record = {"digest": digest, **make(partial)}
            write_replacing(partial / RECORD, json.dumps(record, indent=1, sort_keys=True) + "\n")
            for folder in temporary:
                shutil.rmtree(partial / folder, ignore_errors=True)
            put_in_place(partial, output)
            return record, False
    except OSError as error:
        raise cannot_write(output, error) from None


def digest_of(path: Path) -> str:
    """Return the digest of a small file."""
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def json_digest(content: Sequence[Any]) -> str:
    """Return the digest of plain JSON types."""
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()


@contextmanager
def preparing(output: Path) -> Iterator[Path]:
    """Hold the folder in which the data set of `output` is made, alone.

    Files that an earlier preparation finished are in it; its unfinished files are gone. Afterwards, the folder stays if
    any file in it is finished.

    Raises:
        DataError: another process prepares the same data set.
        OSError: the folder cannot be made.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    partial, previous = partial_folder(output), _previous_folder(output)
    descriptor = _lock(partial)
    try:
        if previous.exists():  # killed while one data set was replaced by the next
            if output.exists():
                shutil.rmtree(previous)
            else:
                previous.rename(output)
        for pattern in (".*.partial", "*.tmp"):
            for leftover in partial.rglob(pattern):
                leftover.unlink(missing_ok=True)
        yield partial
    finally:
        # Once it has been renamed, a folder of that name is another's.
        if is_named(descriptor, partial / _LOCK) and not any(
            path.is_file() for path in partial.rglob("*") if path.name not in (_LOCK, _PLAN)
        ):
            shutil.rmtree(partial, ignore_errors=True)
        os.close(descriptor)


def partial_folder(output: Path) -> Path:
    """Folder in which the data set of `output` is made."""
    return output.with_name(f".{output.name}.partial")


def keep_plan(partial: Path, plan: Sequence[str | int]) -> None:
    """Empty the folder of `preparing` of another plan's files, and write this plan into it, or raise OSError.

    A plan is the digest of all that the data set depends on, and all that the files on the way to it depend on.
    """
    path = partial / _PLAN
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if json.loads(path.read_text(encoding="utf-8")) == [*plan]:
            return
    for entry in partial.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != _LOCK:
            entry.unlink()
    write_replacing(path, json.dumps([*plan]) + "\n")


def put_in_place(partial: Path, output: Path) -> None:
    """Make the folder the data set and remove the one before it, or raise OSError and leave that as it was."""
    previous = _previous_folder(output)
    with contextlib.suppress(FileNotFoundError):
        output.rename(previous)
    try:
        partial.rename(output)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            previous.rename(output)
        raise
    # The lock goes along: without it another preparation could take the folder over just before.
    for name in (_PLAN, _LOCK):
        (output / name).unlink(missing_ok=True)
    sync_folder(output.parent)
    shutil.rmtree(previous, ignore_errors=True)


def kept(output: Path, digest: str, overwrite: bool, needs: str) -> dict[str, Any] | None:
    """Return the record of the data set of this digest, whole, with a key; None where it is to be made.

    Raises:
        DataError: there is another one, not to `overwrite`, or something else, or it cannot be read.
    """
    record = _made_before(output)
    if record is not None and record["digest"] != digest and not overwrite:
        raise DataError(
            f"{output}: must not hold another data set, got one made from other text or with other arguments",
            "add --overwrite to replace it, or give another --output",
        )
    if record is None or record["digest"] != digest:
        return None
    found = {name: (output / name).stat().st_size for name in record["files"] if (output / name).is_file()}
    return record if found == record["files"] and needs in record else None


def cannot_write(output: Path, error: OSError, needed_bytes: int = 0) -> DataError:
    """Error for a data set that cannot be written, with its size, if that is known."""
    if error.errno == errno.ENOSPC:
        takes = f"; the data set takes {needed_bytes:,} bytes" if needed_bytes else ""
        return DataError(
            f"{output}: must fit on its disk, which is full{takes}",
            "free some space and give the same command, which goes on from what is finished; or give another --output",
        )
    return DataError(f"{output}: must be writable, got: {error.strerror or error}", "give another --output")


def _made_before(output: Path) -> dict[str, Any] | None:
    try:
        if not any(output.iterdir()):
            return None
        if (record := read_record(output)) is not None:
            return record
    except NotADirectoryError:
        raise DataError(f"{output}: must be a folder or not exist yet, got a file", "give another --output") from None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{output}: must be readable, got: {error.strerror}") from None
    # Never replaced, with any arguments: it may be the user's own work.
    raise DataError(
        f"{output}: must be empty or a data set made by this command, got other files", "give another --output"
    )


def _previous_folder(output: Path) -> Path:
    return output.with_name(f".{output.name}.previous")


def _lock(partial: Path) -> int:
    while True:
        partial.mkdir(exist_ok=True)
        # The process that had the folder may rename or remove it meanwhile.
        with contextlib.suppress(FileNotFoundError):
            try:
                return lock_file(partial / _LOCK)
            except BlockingIOError as error:
                raise DataError(
                    f"{partial}: must be used by one preparation at a time, it is in use by {error.strerror}",
                    "wait for it, stop it, or give another --output",
                ) from None
            except NoLocksError:
                with contextlib.suppress(OSError):  # it may not be empty
                    partial.rmdir()
                raise
