"""The sparsity section from plain data: a number, a group or a list of groups, and names of older releases."""

from typing import Any

from cstool.foundation.yaml_lines.document import Key
from cstool.foundation.yaml_lines.problems import Problems, show
from cstool.foundation.yaml_lines.section import lower
from cstool.model.params.sections.sparsity import (
    ALGORITHMS,
    SHARES,
    WRONG,
    CyclingShare,
    SparsityParams,
    SparsitySchedule,
)


def check_sparsity(problems: Problems, data: Any, key: Key) -> tuple[SparsityParams, ...] | None:
    """Check the section at `key`: a number, a group or a list of groups; return the groups, None with problems."""
    if data is None:
        return ()
    if isinstance(data, list):
        groups = [_check_group(problems, group, (*key, index)) for index, group in enumerate(data)]
    else:
        groups = [_check_group(problems, data, key)]
    return None if None in groups else tuple(group for group in groups if group)


def _check_group(problems: Problems, data: Any, key: Key) -> SparsityParams | None:
    if isinstance(data, int | float) and not isinstance(data, bool):
        return problems.check_value(SparsityParams, "sparsity", data, key)
    if not isinstance(data, dict):
        problems.add(key, "must be a number or a mapping", data)
        return None
    older = _refuse_older_keys(problems, data, key)
    # What follows from the key by its newer name is no second problem.
    data = {"algorithm": data["type"], **data} if lower(data.get("type")) in ALGORITHMS else data
    data = {name: value for name, value in data.items() if name not in older}
    right = not older
    for name in ("sparsity", "schedule", "drop_fraction"):
        value, below = data.get(name), (*key, name)
        share: SparsitySchedule | None = None
        if isinstance(value, list):
            share = problems.check_value(CyclingShare, "values", value, below)
        elif isinstance(value, dict) and (kind := _kind(problems, value, below)) is not None:
            share = problems.check(kind, {**value, "type": lower(value["type"])}, below)
        elif not isinstance(value, dict):
            continue
        right = right and share is not None
        data[name] = share if share is not None else WRONG
    checked = problems.check(SparsityParams, data, key)
    return checked if right else None


_OLDER_KEYS: dict[str, tuple[str, str]] = {
    "type": ("algorithm", "write algorithm: {value}"),
    "param_name_patterns": (
        "param_filter",
        "param_filter takes patterns as file names have them, not regular expressions: '*linear_layer.weight'",
    ),
}
_CADENCE = {"freq", "start", "stop", "steps"}


def _refuse_older_keys(problems: Problems, data: dict[str, Any], key: Key) -> list[str]:
    """Add problems for the keys of releases before 2.2; return which there are."""
    older = [name for name in _OLDER_KEYS if name in data]
    for name in older:
        now, hint = _OLDER_KEYS[name]
        value = show(data[name]).strip("'")
        problems.add((*key, name), f"is called {now} since release 2.2", hint=hint.format(value=value))
    cadence = data.get("schedule")
    if isinstance(cadence, dict) and "type" not in cadence and _CADENCE & cadence.keys():
        hint = "schedule now is another name of sparsity, the share of zeros"
        problems.add((*key, "schedule"), "is called update since release 2.2", hint=hint)
        older.append("schedule")
    return older


def _kind(problems: Problems, data: dict[str, Any], key: Key) -> type[SparsitySchedule] | None:
    names = ", ".join(SHARES)
    written = data.get("type")
    if written is None:
        problems.add((*key, "type"), "is missing", hint=f"the names are {names}")
    elif (kind := SHARES.get(str(written).lower())) is None:
        problems.add((*key, "type"), f"must be one of {names}", written)
    else:
        return kind
    return None
