"""The number of samples on the modelled wafer at once: its places in a file, and their precedence."""

from typing import Any

from cstool.foundation.words import NO_EFFECT
from cstool.foundation.yaml_lines.document import Document, Key
from cstool.foundation.yaml_lines.problems import Problems
from cstool.foundation.yaml_lines.section import MAX_STEPS
from cstool.model.batch_split import nearest_divisors

MICRO_BATCH_FLAG = "csx.performance.micro_batch_size"
"""the vendor's flag, an argument of GlobalFlags and ScopedTrainFlags"""
MICRO_BATCH_CALLBACKS = ("GlobalFlags", "ScopedTrainFlags")
"""the callbacks whose flags count for training, in the order of increasing precedence"""
MICRO_BATCH_VALUES = "a whole number from 1 that divides batch_size, auto, explore, {explore: {min, max}}"
_RULE = "must be a whole number from 1, auto, explore, or explore with min and max"


class MicroBatchChoice:
    """Collects a file's settings of the size of a micro-batch.

    The last `ScopedTrainFlags` with the flag wins over the last `GlobalFlags`, and both over the key of the training
    data, as a flag for training alone does with the vendor. Typed flags win over all settings in the file.
    """

    def __init__(self, document: Document, problems: Problems) -> None:
        self._document = document
        self._problems = problems
        self._found: list[tuple[tuple[bool, int, int], Key, Any]] = []

    def take_from_flags(self, callback: str, flags: dict[str, Any], key: Key) -> dict[str, Any]:
        """Take the flag from the arguments of a callback; return the other arguments.

        Args:
            callback: one of MICRO_BATCH_CALLBACKS
            flags: its arguments; `--set` makes mappings of the parts of the flag's name
            key: of the callback
        """
        rank = 1 + MICRO_BATCH_CALLBACKS.index(callback)
        others, found = _split(flags, MICRO_BATCH_FLAG, key)
        for place, value in found:
            self._add(rank, value, place)
        return others

    def take_from_loader(self, loader: dict[str, Any], key: Key) -> dict[str, Any]:
        """Take micro_batch_size from the section of the training data; return the other keys."""
        if "micro_batch_size" in loader:
            self._add(0, loader["micro_batch_size"], (*key, "micro_batch_size"))
        return {name: value for name, value in loader.items() if name != "micro_batch_size"}

    def size(self, batch_size: int | None) -> int | None:
        """Check all collected values; return the one that counts, None to leave it to the compiler.

        Args:
            batch_size: of the training data; None if there is none, or it is wrong
        """
        *others, (_, key, value) = sorted(self._found, key=lambda found: found[0]) or [((False, 0, 0), (), None)]
        for _, other, overruled in others:
            self._check(overruled, other)
            self._problems.note(other)
        size = self._check(value, key)
        if size is None or batch_size is None or batch_size % size == 0:
            return size
        self._problems.add(key, f"must divide batch_size ({batch_size})", size, nearest_divisors(batch_size, size))
        return None

    def _add(self, rank: int, value: Any, key: Key) -> None:
        if value is not None:
            typed = self._document.place(key).key is not None
            self._found.append(((typed, rank, len(self._found)), key, value))

    def _check(self, value: Any, key: Key) -> int | None:
        """Return the size if the value is one; add a problem if it is wrong."""
        if value is None or value in ("auto", "explore"):
            return None
        if type(value) is int and 1 <= value <= MAX_STEPS:
            return value
        if isinstance(value, dict) and list(value) == ["explore"]:
            self._check_bounds(value["explore"], (*key, "explore"))
        else:
            self._problems.add(key, _RULE, value)
        return None

    def _check_bounds(self, bounds: Any, key: Key) -> None:
        if bounds is None:
            return
        self._problems.check_keys(bounds, key, ("min", "max"))
        if not isinstance(bounds, dict):
            return
        given = {name: bound for name in ("min", "max") if (bound := bounds.get(name)) is not None}
        wrong = [name for name, bound in given.items() if type(bound) is not int or not 1 <= bound <= MAX_STEPS]
        for name in wrong:
            self._problems.add((*key, name), "must be a whole number from 1", given[name])
        if not wrong and len(given) == 2 and given["min"] > given["max"]:
            self._problems.add((*key, "min"), f"must be at most max ({given['max']})", given["min"])
        if given:
            where = self._problems.where(key)[1]
            self._problems.note_text(f"{where}: {NO_EFFECT}: the compiler's search is exact and takes no hints")


def _split(flags: dict[str, Any], name: str, key: Key) -> tuple[dict[str, Any], list[tuple[Key, Any]]]:
    """Split flags, which stand at a key, into all others, and key and value of one.

    Its name may stand as a whole or be split at its dots; mappings that held nothing else go with it.
    """
    others: dict[str, Any] = {}
    found: list[tuple[Key, Any]] = []
    for part, value in flags.items():
        if part == name:
            found.append(((*key, part), value))
        elif isinstance(value, dict) and name.startswith(f"{part}."):
            rest, below = _split(value, name[len(part) + 1 :], (*key, part))
            found += below
            if rest or not value:
                others[part] = rest
        else:
            others[part] = value
    return others, found
