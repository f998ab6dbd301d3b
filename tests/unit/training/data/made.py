"""Samples of text, and what the tests of prepared texts make and look at."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from cstool.training.data import open_hdf5_text, write_hdf5_text
from tests.end_to_end.refusals import rows
from tests.unit.training.data.encoder_files import read


def samples(count: int, sequence_length: int = 4, seed: int = 0) -> np.ndarray[Any, Any]:
    """Make random samples (n, 3, S) with tokens below 100, a fifth of the positions masked."""
    rng = np.random.default_rng(seed)
    made = rng.integers(0, 100, (count, 3, sequence_length), dtype=np.int32)
    made[:, 1] = rng.random((count, sequence_length)) < 0.8
    made[:, 2] *= made[:, 1]
    return made


def write(path: Path, content: np.ndarray[Any, Any]) -> None:
    """Write samples (n, 3, S) to a file, and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_hdf5_text(path, [content], len(content), content.shape[2])


def write_files(folder: Path, **contents: str | bytes) -> None:
    """Write files, and the folders that they are in, which `__` parts in their names."""
    for name, content in contents.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def save_words(path: Path, unknown: str, **numbers: int) -> Path:
    """Save a tokenizer of words with spaces between, which have these numbers; return its path."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.WordLevel(numbers, unk_token=unknown))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.save(str(path))
    return path


def refusals(table: str) -> list[tuple[dict[str, Any], str]]:
    """Return what is asked for in each row of a table, as YAML, and the message that follows =>."""
    return [(yaml.safe_load(asked), message) for asked, message in rows(table)]


def preparer(prepare: Callable[..., Any], plan: Any, source: Path, output: Path, **usual: Any) -> Callable[..., Any]:
    """Return what prepares a source as usual; what is asked for, and how, may be changed, or left out with None."""

    def call(sources: Any = None, output: Path = output, **changes: Any) -> Any:
        asked = {name: value for name, value in (usual | changes).items() if value is not None}
        how = {name: asked.pop(name) for name in [*asked] if name not in plan.__dataclass_fields__}
        return prepare(sources or [source], output, plan(**asked), **how)

    return call


def write_words(folder: Path, special: str) -> Path:
    """Write twelve files of words, a special token among them; return their folder."""
    lines = ["the cat sat on the mat .", "a dog, and a dog's mat!", f'Café {special} sat \\ "on" it']
    folder.mkdir()
    for number in range(12):
        (folder / f"{number:02d}.txt").write_text("\n".join(lines[(number + i) % 3] for i in range(4 + number)) + "\n")
    return folder


PART = {"files": 1, "size_bytes": 5, "samples": 1, "tokens": 4}
RECORD = {
    "digest": "0",
    "files": {"train/data.h5": 100},
    "parts": {"train": PART, "val": PART},
    "sequence_length": 4,
    "tokenizer": {"file": "tokenizer.json", "made_from": "a.json", "vocab_size": 300, "digest": "1"},
}


def write_record(folder: Path, record: str | dict[str, Any]) -> Path:
    """Write the record of a data set; return its folder."""
    (folder / "prepared.json").write_text(record if isinstance(record, str) else json.dumps(record))
    return folder


ANOTHER = "must not hold another data set, got one made from other text or with other arguments\n"
ANOTHER += "hint: add --overwrite to replace it, or give another --output"
FREE_SPACE = "hint: free some space and give the same command, which goes on from what is finished; or give another "
FREE_SPACE += "--output"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def interrupt_after(calls: int) -> Callable[[int, int], None]:
    """Return a progress that is interrupted once it was told so often."""
    told = itertools.count(1)

    def tell(_done: int, _total: int) -> None:
        if next(told) == calls:
            raise KeyboardInterrupt

    return tell


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def read_all(folder: Path) -> dict[str, Any]:
    dataset = open_hdf5_text([folder], vocab_size=256)
    out = read(dataset, range(dataset.sample_count))
    dataset.close()
    return out


def text_of(folder: Path) -> bytes:
    """Put the text of a part together again, from its samples."""
    out = read_all(folder)
    told = zip(sum(out["labels"], []), sum(out["mask"], []), strict=True)
    return bytes([out["input_ids"][0][0], *(label for label, counts in told if counts)])
