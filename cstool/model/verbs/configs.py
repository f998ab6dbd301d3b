"""Params files checked, resolved, counted, converted, pulled: the verbs behind `cstool config`.

A file may be the name of a stock one; overrides are as for `load_all_params`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cstool.foundation.errors import ParamsError
from cstool.foundation.plain_text import lines

if TYPE_CHECKING:
    from cstool.model.graphs.statistics import Statistics
    from cstool.model.ir import Graph
    from cstool.model.params import Params
    from cstool.model.params.keys import KeyTable

PATH_KEYS = ("data_dir", "ckpt_path", "ckpt_paths")
"""keys whose values are looked for from the folder of the file on"""


class ValidConfig(NamedTuple):
    """A params file without mistakes: models and their parameters, warnings, notes on unused settings."""

    models: tuple[tuple[str, int], ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


class ConfigStatistics(NamedTuple):
    """Parameters, bytes and operations of one trainer's model.

    Args:
        model: its name
        batch_size: global; None where the file does not say
        counts: of parameters and FLOPs
        memory: content of MemoryX -> count of numbers
        element_bytes: of a number in one of these
    """

    model: str
    batch_size: int | None
    counts: Statistics
    memory: dict[str, int]
    element_bytes: int


def validate_config(file: Path, overrides: Sequence[str] = ()) -> ValidConfig:
    """Check a params file as a run would: all mistakes at once, and keys without effect.

    Raises:
        ParamsError: it breaks rules
    """
    from cstool.model.graphs.following import check_following
    from cstool.model.params import load_all_params

    trainers = load_all_params(file, overrides=overrides)
    graphs = [_graph(params) for params in trainers]
    for params, graph in zip(trainers, graphs, strict=True):
        if params.sparsity:  # late: the rules of sparsity need NumPy
            from cstool.model.sparsity import assign_groups

            assign_groups(params.sparsity, graph, params.sparsity_place)
    following = check_following(trainers, graphs)
    return ValidConfig(
        tuple((graph.name, graph.parameter_count) for graph in graphs),
        (*dict.fromkeys(warning for params in trainers for warning in params.warnings), *following),
        tuple(dict.fromkeys(note for params in trainers for note in params.notes)),
    )


def resolve_config(file: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Read a params file as it is understood: all defaults filled in, paths absolute, overrides applied.

    Raises:
        ParamsError: it breaks rules
    """
    from cstool.model.params import load_all_params

    trainers = [params.resolved() for params in load_all_params(file, overrides=overrides)]
    return dict(trainers[0]) if len(trainers) == 1 else {"trainer": trainers}


def config_statistics(file: Path, overrides: Sequence[str] = ()) -> tuple[ConfigStatistics, ...]:
    """Count parameters, bytes and floating-point operations of the model of each trainer.

    Raises:
        ParamsError: the file breaks rules
    """
    from cstool.model.graphs.statistics import FLOAT32_BYTES, count_statistics
    from cstool.model.optimizers import costed_optimizer, state_numbers
    from cstool.model.params import load_all_params

    found = []
    for params in load_all_params(file, overrides=overrides):
        graph = _graph(params)
        counts = count_statistics(graph)
        memory = {"weights": counts.parameters()}
        if params.optimizer is not None:
            optimizer = costed_optimizer(params.optimizer)
            state = sum(state_numbers(optimizer, weight.shape) for weight in graph.trained_weights.values())
            memory |= {"gradients": counts.trained, "optimizer state": state}
        batch_size = None if params.train_dataloader is None else params.train_dataloader.batch_size
        found.append(ConfigStatistics(params.model.name, batch_size, counts, memory, FLOAT32_BYTES))
    return tuple(found)


def convert_legacy(file: Path, target: Path) -> ParamsError | None:
    """Write a params file of the older layout (train_input, model, runconfig) in the trainer layout.

    Missing keys stay missing. Paths in it stay as they are, but in another folder they become absolute.

    Returns:
        Mistakes to mend in the new file; None if there are none

    Raises:
        ParamsError: the file is in another layout, or the new one cannot be written
    """
    from cstool.foundation.yaml_lines.document import read_document
    from cstool.model.params import load_all_params
    from cstool.model.params.legacy import convert_legacy_data, is_legacy
    from cstool.model.params.legacy_keys import SECTIONS
    from cstool.model.params.load import require_one_layout

    document = read_document(file)
    data = document.data
    if not is_legacy(data):
        if isinstance(data, dict) and any(name in data for name in SECTIONS):
            require_one_layout(document)
        is_new = isinstance(data, dict) and "trainer" in data
        got = "got the trainer layout" if is_new else "got neither layout"
        message = f"{file}: must be in the older layout (train_input, model, optimizer, runconfig), {got}"
        raise ParamsError([(message, "it needs no conversion" if is_new else None)])
    converted = convert_legacy_data(data, file)
    if target.absolute().parent != file.absolute().parent:
        converted = _with_absolute_paths(converted, file.parent)
    try:
        with target.open("x", encoding="utf-8") as opened:
            opened.write(yaml_text(converted))
    except FileExistsError:
        hint = "remove it, or name another file with --out"
        raise ParamsError([(f"{target}: must be a new file, found one there", hint)]) from None
    except OSError as error:
        raise _not_written(target, error) from None
    try:
        load_all_params(target)
    except ParamsError as error:
        return error
    return None


def config_keys() -> tuple[tuple[KeyTable, ...], tuple[KeyTable, ...]]:
    """Tables of every key that a params file may hold: keys of the trainer layout, and of the older one."""
    from cstool.model.params.keys import key_tables, legacy_tables

    return key_tables(), legacy_tables()


def pull_config(name: str, out: Path | None = None, overrides: Sequence[str] = (), *, replaces: bool = False) -> Path:
    """Write a stock params file, comments and all, and return its path.

    Data is looked for in the working directory.

    Args:
        name: of the stock file
        out: the file, or a folder for it; None for NAME.yaml in the working directory
        overrides: other values for keys
        replaces: whether a file that is there is replaced

    Raises:
        ParamsError: there is no such stock file, a value is wrong, or the file cannot be written
    """
    from cstool.foundation.atomic_file import write_replacing
    from cstool.model.params import load_all_params, stock_file, stock_text, with_paths_from, with_values

    load_all_params(stock_file(name), overrides=overrides)
    target = Path(f"{name}.yaml") if out is None else out / f"{name}.yaml" if out.is_dir() else out
    # Paths of a stock file count as if it lay in a folder `params`.
    text = with_values(with_paths_from(stock_text(name), Path.cwd() / "params", target.parent), overrides)
    if target.exists() and not replaces:
        rule = f"{target}: must be a new file, found one there"
        raise ParamsError([(rule, "--force replaces it, --out names another file")])
    try:
        write_replacing(target, text)
    except OSError as error:
        raise _not_written(target, error) from None
    return target


def yaml_text(document: Mapping[str, Any]) -> str:
    """Data of a params file as YAML, keys in their order."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - what stands twice is written twice
            return True

    def dump(allow_unicode: bool) -> str:
        return str(yaml.dump(dict(document), Dumper=Dumper, sort_keys=False, allow_unicode=allow_unicode))

    text = dump(allow_unicode=True)
    # Characters that a terminal does not show are written as YAML's escapes, which mean the same.
    return text if lines(text) == text else dump(allow_unicode=False)


def _graph(params: Params) -> Graph:
    """Build the graph for samples as long as the file says, or as long as the model takes."""
    from cstool.model.graphs import declared_form, trained_graph

    return trained_graph(params, declared_form(params))


def _with_absolute_paths(value: Any, folder: Path, is_path: bool = False) -> Any:
    """Write the paths in data of a params file that lies in `folder` so that they are good for any folder."""
    if isinstance(value, dict):
        return {key: _with_absolute_paths(item, folder, key in PATH_KEYS) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_absolute_paths(item, folder, is_path) for item in value]
    if not (is_path and isinstance(value, str)):
        return value
    from cstool.model.params import resolve_path

    return str(resolve_path(value, folder).path)


def _not_written(path: Path, error: OSError) -> ParamsError:
    folder = None if path.parent.is_dir() else f"there is no folder {path.parent}"
    return ParamsError([(f"{path}: cannot be written: {error.strerror or error}", folder)])
