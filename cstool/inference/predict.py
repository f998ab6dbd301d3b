"""The classes that a model predicts for a data set, into a CSV or an HDF5 file."""

import csv
import logging
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cstool.foundation.atomic_file import sync_folder
from cstool.foundation.errors import InferenceError, NonFiniteError
from cstool.foundation.progress import Progress
from cstool.inference.model import InferenceModel
from cstool.training.data import Sampler, batches_per_epoch
from cstool.training.data.hdf5_rows import open_hdf5
from cstool.training.kernels.cached_attention import News
from cstool.training.machine.data_sets import open_samples
from cstool.training.machine.inputs import Batch, InputWorker

log = logging.getLogger("cstool")
TASK = "Predicting"
Array = np.ndarray[Any, Any]

_Write = Callable[[int, Array, Array], None]
"""writes the labels and probabilities of the next samples, from this number on"""

_NO_TOKENS = News(*(np.zeros(0, np.int64) for _ in News._fields))


@dataclass(frozen=True)
class Predictions:
    """Predictions of a data set, and their accuracy; times are of this host."""

    path: str
    samples: int
    accuracy: float
    seconds: float
    samples_per_s: float

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        found = asdict(self)
        host = {name: found.pop(name) for name in ("seconds", "samples_per_s")}
        return {"predictions": found, "host": host}


def predict(
    model: InferenceModel, path: Path | None = None, *, batch_size: int | None = None, progress: Progress
) -> Predictions:
    """Write for every sample of the validation data its label, the likeliest class and all probabilities.

    Args:
        model: that classifies samples
        path: of a .csv or .h5 file, replaced in one go; None for predictions_<step>.csv in model_dir
        batch_size: samples that go through the model together; None for the dataloader's. The numbers do not
            depend on it
        progress: is told the number of samples so far

    Raises:
        InferenceError: the file cannot be written
        DataError: the data set cannot be read
        NonFiniteError: a logit is not finite
    """
    params = model.params
    # Of several data sets, the first.
    loader, *_ = params.dataloaders("eval")
    size = batch_size or loader.batch_size
    path = path or params.model_dir / f"predictions_{model.step}.csv"
    began, correct, done = time.perf_counter(), 0, 0
    with ExitStack() as stack:
        dataset = open_samples(params, loader, stack)
        log.info(dataset.describe())
        batches = batches_per_epoch(dataset.sample_count, size, drop_last=False)
        count = dataset.sample_count
        if params.loop.eval_steps is not None:
            batches = min(batches, params.loop.eval_steps)
            count = min(count, batches * size)
        # In the order of the data set, so that the number of a row is the number of its sample.
        sampler = Sampler(dataset.sample_count, size, shuffle=False, seed=0, drop_last=False)
        walk = model.walk(0, 0)
        fields = [tensor.name for tensor in model.graph.inputs if tensor.name not in ("labels", "mask")]
        write = stack.enter_context(_table(path, count, walk.classes))
        worker = stack.enter_context(InputWorker(dataset, sampler, 0, batches))
        progress.start(TASK, batches)
        for number in range(1, batches + 1):
            batch: Batch = worker.next()
            rows = slice(0, batch.samples)
            logits = walk.run({name: batch.arrays[name][rows] for name in fields}, _NO_TOKENS, np.arange(batch.samples))
            if not np.isfinite(logits).all():
                bad = int(np.flatnonzero(~np.isfinite(logits).all(axis=1))[0])
                raise NonFiniteError(
                    f"sample {done + bad}: the logits must be finite, got {logits[bad][~np.isfinite(logits[bad])][0]}"
                )
            labels = batch.arrays["labels"][rows].reshape(-1)
            write(done, labels, _probabilities(logits))
            correct += int((logits.argmax(axis=1) == labels).sum())
            done += batch.samples
            progress.advance(TASK, number)
        progress.finish(TASK)
    seconds = time.perf_counter() - began
    found = Predictions(str(path), done, correct / done, seconds, done / max(seconds, 1e-9))
    log.info(
        f"| Inference Device=CSX, Step={batches}, Rate={found.samples_per_s:.2f} samples/sec, "
        f"GlobalRate={found.samples_per_s:.2f} samples/sec"
    )
    log.info(f"{path}: {done:,} predictions, {found.accuracy:.2%} of them right.")
    return found


def _probabilities(logits: Array) -> Array:
    shares: Array = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


@contextmanager
def _table(path: Path, samples: int, classes: int) -> Iterator[_Write]:
    """Open a table, which replaces `path` when it is whole.

    Its errors name the final file; errors of the data set are not mistaken for them.
    """
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with ExitStack() as stack:
            with _written(path):
                opened = _hdf5_table(aside, samples, classes) if path.suffix == ".h5" else _csv_table(aside, classes)
                write = stack.enter_context(opened)

            def write_rows(first: int, labels: Array, probabilities: Array) -> None:
                with _written(path):
                    write(first, labels, probabilities)

            yield write_rows
        with _written(path):
            aside.replace(path)
            sync_folder(path.parent)
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


@contextmanager
def _written(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InferenceError(f"{path}: must be writable, got: {error.strerror or error}") from None


@contextmanager
def _csv_table(path: Path, classes: int) -> Iterator[_Write]:
    """A line per sample: its number, its label, the likeliest class, the probability of each."""
    with path.open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["sample", "label", "prediction", *(f"probability_{k}" for k in range(classes))])

        def write(first: int, labels: Array, probabilities: Array) -> None:
            likeliest = probabilities.argmax(axis=1)
            for k, (label, prediction, row) in enumerate(zip(labels, likeliest, probabilities, strict=True)):
                lines.writerow([first + k, label, prediction, *(f"{share:.6g}" for share in row)])

        yield write


@contextmanager
def _hdf5_table(path: Path, samples: int, classes: int) -> Iterator[_Write]:
    """Datasets `label` and `prediction`, (n,) int32, and `probability`, (n, classes) float32."""
    with open_hdf5(path, "w") as file:
        for name in ("label", "prediction"):
            file.create_dataset(name, (samples,), np.int32)
        file.create_dataset("probability", (samples, classes), np.float32)

        def write(first: int, labels: Array, probabilities: Array) -> None:
            rows = slice(first, first + len(labels))
            file["label"][rows] = labels
            file["prediction"][rows] = probabilities.argmax(axis=1)
            file["probability"][rows] = probabilities

        yield write
