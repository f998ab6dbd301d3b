"""The log of a run: the vendor's line format, on the screen and in the model directory."""

import logging
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from cstool.foundation.atomic_file import replace_link
from cstool.foundation.errors import CstoolError
from cstool.foundation.plain_text import one_line

LOG = logging.getLogger("cstool")
LINE_FORMAT = "%(asctime)s %(levelname)s:   %(message)s"  # such as 2024-03-14 03:20:31,277 INFO:   | Train ...


class PassedOn(logging.Handler):
    """Pass lines to the handlers above the package's logger, from the level set so far: as without the log of a run."""

    def __init__(self) -> None:
        super().__init__(LOG.getEffectiveLevel())

    def emit(self, record: logging.LogRecord) -> None:
        """Pass one record on."""
        if LOG.parent is not None:
            LOG.parent.callHandlers(record)


@contextmanager
def run_log(
    model_dir: Path | None,
    level: str,
    shown: logging.Handler | None,
    resolved_params: Mapping[str, Any],
    called: str | None = None,
    *,
    is_latest: bool = True,
) -> Iterator[Path | None]:
    """Send the package's log lines to `shown` and to `<model_dir>/cerebras_logs/<time>/run.log`; yield that folder.

    Without `model_dir` no file is written; None is yielded. Without `shown`, lines go to the handlers that the caller
    set up in `logging`, as without the log of a run. `called` is the verb that was called from Python; None for a typed
    command. Unless it `is_latest`, no link points to the log: a run that trains may be at work in the same folder.

    The params with all defaults filled in lie beside it, in `trainer_params.yaml`. An error that ends the run is in
    the file too, with its traceback unless it is one of ours. Lines that cannot be written are lost without a word:
    a full disk or a closed pipe is reported where it matters.

    Raises:
        CstoolError: the folder cannot be made.
    """
    try:
        folder = None if model_dir is None else _new_folder(model_dir, is_latest)
        written: logging.Handler = logging.NullHandler()
        if folder is not None:
            (folder / "trainer_params.yaml").write_text(yaml.safe_dump(dict(resolved_params), sort_keys=False))
            written = logging.FileHandler(folder / "run.log", encoding="utf-8")
    except OSError as error:
        raise CstoolError(
            f"{model_dir}: model_dir must be a folder that can be written, got: {error.strerror}",
            "choose another one with --model_dir",
        ) from error
    handlers = (shown or PassedOn(), written)
    level_before, propagated = LOG.level, LOG.propagate
    raise_exceptions, logging.raiseExceptions = logging.raiseExceptions, False
    LOG.setLevel(level)
    LOG.propagate = False
    for handler in handlers:
        handler.setFormatter(logging.Formatter(LINE_FORMAT))
        handler.addFilter(_show_controls)
        LOG.addHandler(handler)
    began = f"Running command: {shlex.join(sys.argv)}" if called is None else f"Called from Python: {called}"
    try:
        LOG.info("Current Working Directory: %s", Path.cwd())
        LOG.info("%s", began)
        yield folder
    except BaseException as error:
        expected = isinstance(error, CstoolError)
        record = LOG.makeRecord(
            LOG.name, logging.ERROR, __file__, 0, str(error), (), None if expected else sys.exc_info()
        )
        written.handle(record)
        raise
    finally:
        for handler in handlers:
            LOG.removeHandler(handler)
        with suppress(OSError):
            written.close()
        logging.raiseExceptions = raise_exceptions
        LOG.setLevel(level_before)
        LOG.propagate = propagated


def _show_controls(record: logging.LogRecord) -> bool:
    """Show, in place of obeying them, the control characters of a record; an error's are shown by then."""
    if record.levelno < logging.ERROR:
        record.msg, record.args = one_line(record.getMessage()), ()
    return True


def _new_folder(model_dir: Path, is_latest: bool) -> Path:
    logs = model_dir / "cerebras_logs"
    logs.mkdir(parents=True, exist_ok=True)
    started = time.strftime("%Y%m%d_%H%M%S")
    for name in (started, *(f"{started}_{again}" for again in range(1, 1000))):  # two runs may start in one second
        try:
            (logs / name).mkdir()
        except FileExistsError:
            continue
        if is_latest:
            replace_link(logs / "latest", Path(name))
            replace_link(model_dir / "latest_run.log", Path("cerebras_logs") / name / "run.log")
        return logs / name
    raise FileExistsError(17, "too many runs in one second", str(logs / started))
