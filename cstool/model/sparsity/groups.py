"""Which weights are sparse, and by the rules of which group."""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import translate
from itertools import accumulate

from cstool.foundation.errors import ParamsError
from cstool.model.batch_split import nearest_divisors
from cstool.model.ir import Graph, Weight, rules_of
from cstool.model.params.sections.sparsity import SparsityParams
from cstool.model.params.sections.tuning import is_of_adapter

_DENSE_BY_DEFAULT = ("embedding", "norm", "lm_head", "pe_helper")
"""parts of names; source: cerebras.pytorch.sparse, 2.10 (default_sparse_param_filter)"""
_MOST_NEAREST = 3


def assign_groups(groups: Sequence[SparsityParams], graph: Graph, place: tuple[str, str]) -> dict[str, int]:
    """Return the sparse weights by name, each with the number of its group: the first whose filter matches.

    Only matrices of linear ops can be sparse, matrices of experts among them. A filter speaks of matrices alone: biases
    and norms that it matches stay dense. Patterns are shell patterns for file names, case matters, and a name may have
    `model.` before it. A group without a filter takes the matrices of linear ops whose names have none of embedding,
    norm, lm_head and pe_helper. Balanced blocks must divide the dimension that they cut, rows for balance_out_groups
    and columns for balance_in_groups; the vendor is content if they divide either. Weights of adapters are dense,
    whatever matches them.

    Args:
        groups: of the params, in order
        graph: of the model
        place: of the section in the params file, and its key, as `Params.sparsity_place`

    Raises:
        ParamsError: a pattern matches no matrix, or one that cannot be sparse; a group has nothing that one before it
            did not take; blocks do not divide a matrix. All of them at once.
    """
    return _Assignment(groups, graph, place).assign()


class _Assignment:
    """One pass over the groups, with the problems found so far."""

    def __init__(self, groups: Sequence[SparsityParams], graph: Graph, place: tuple[str, str]) -> None:
        self._groups = groups
        self._label, self._key = place
        self._model = graph.name
        self._matrices = {
            name: weight for name, weight in graph.weights.items() if len(weight.shape) > 1 and not is_of_adapter(name)
        }
        self._dense = _other_than_linear(graph)
        self._spellings = {name: [name, f"model.{name}"] for name in self._matrices}
        for alias, name in graph.aliases.items():
            if name in self._spellings:
                self._spellings[name] += [alias, f"model.{alias}"]
        self._taken: dict[str, int] = {}
        self._problems: list[tuple[str, str | None]] = []

    def assign(self) -> dict[str, int]:
        """Return the number of the group of each sparse weight."""
        for number, group in enumerate(self._groups):
            found = self._by_default() if group.param_filter is None else self._matches(number, group.param_filter)
            own = [name for name in found if name not in self._taken]
            if found and not own:
                self._add_all_taken(number, found)
            elif not found and group.param_filter is None:
                rule = f"must be left out: {self._model} has no matrix of a linear layer"
                self._problems.append((f"{self._label}: {self._key} {rule}", None))
            self._check_balance(number, group, [self._matrices[name] for name in own])
            frozen = next((name for name in own if self._matrices[name].frozen), None)
            if group.is_dynamic and frozen is not None:
                rule = f"must be one whose masks stay, {frozen} is frozen, got {group.algorithm}"
                self._add(number, "algorithm", rule, "static, or a filter for weights that are trained")
            self._taken |= dict.fromkeys(own, number)
        if self._problems:
            raise ParamsError(self._problems)
        return self._taken

    def _add(self, number: int, name: str, rule: str, hint: str | None) -> None:
        """Add a problem with a key of a group; a group alone is named as one that is no list."""
        key = self._key if len(self._groups) == 1 else f"{self._key}.{number}"
        self._problems.append((f"{self._label}: {key}.{name} {rule}", hint))

    def _by_default(self) -> list[str]:
        return [name for name in self._sparse() if not any(part in name for part in _DENSE_BY_DEFAULT)]

    def _sparse(self) -> Iterator[str]:
        return (name for name in self._matrices if name not in self._dense)

    def _matches(self, number: int, patterns: Iterable[str]) -> list[str]:
        """Return the matrices that patterns match and that can be sparse, in the order of the graph."""
        matched: set[str] = set()
        for pattern in patterns:
            found = set(self._match(pattern))
            if not found:
                nearest = _nearest(pattern, {_pattern_of(name): None for name in self._sparse()})
                rule = f"must match a matrix of a linear layer, got {pattern!r}"
                self._add(number, "param_filter", rule, f"the nearest {nearest}" if nearest else None)
            for name in self._matrices:
                if name in found and name in self._dense:
                    rule = f"must leave out {name}, which is {self._dense[name]}, got {pattern!r}"
                    self._add(number, "param_filter", rule, "only matrices of linear layers can be sparse")
            matched |= found
        return [name for name in self._sparse() if name in matched]

    def _match(self, pattern: str) -> Iterator[str]:
        matches = re.compile(translate(pattern)).match
        return (name for name, spellings in self._spellings.items() if any(map(matches, spellings)))

    def _add_all_taken(self, number: int, found: Sequence[str]) -> None:
        takers = sorted({self._taken[name] for name in found})
        written = self._groups[number].param_filter
        got = "" if written is None else f", got {', '.join(map(repr, written))}"
        whose = f"{self._key}.{' and '.join(map(str, takers))}"
        hint = f"{whose} {'takes' if len(takers) == 1 else 'take'} all that it matches; a narrower filter goes first"
        self._add(number, "param_filter", f"must match a matrix that no group before it takes{got}", hint)

    def _check_balance(self, number: int, group: SparsityParams, weights: Iterable[Weight]) -> None:
        """Add a problem for every length that the blocks of a group do not divide, with the first such weight."""
        balances = (
            ("balance_out_groups", group.balance_out_groups, 0),
            ("balance_in_groups", group.balance_in_groups, 1),
        )
        for name, blocks, axis in balances:
            told: set[int] = set()
            for weight in weights if blocks else ():
                length = weight.shape[axis]
                if blocks and length % blocks and length not in told:
                    told.add(length)
                    shape = " x ".join(map(str, weight.shape))
                    rule = f"must divide the {('rows', 'columns')[axis]} of {weight.name} ({shape}), got {blocks}"
                    self._add(number, name, rule, nearest_divisors(length, blocks))


def _other_than_linear(graph: Graph) -> dict[str, str]:
    """Every weight of an op whose matrix cannot be sparse, with its description."""
    found: dict[str, list[str]] = {}
    for op in graph.ops:
        if not rules_of(op).can_be_sparse:
            for name in op.weights:
                found.setdefault(name, []).append(rules_of(op).matrix_name or f"of {op.kind.value}")
    return {name: " and ".join(words) for name, words in found.items()}


def _pattern_of(name: str) -> str:
    """Return a name with the numbers of layers and experts as `*`."""
    return re.sub(r"((?<=layers\.)|(?<=experts\.))\d+", "*", name)


def _nearest(pattern: str, known: Iterable[str]) -> str:
    """Return "is ..." or "are ...": the patterns that are like this one, whole or from some dot on; empty if none."""

    def likeness(name: str) -> float:
        ends = accumulate(reversed(name.split(".")), lambda end, part: f"{part}.{end}")
        return max(difflib.SequenceMatcher(None, pattern, end).ratio() for end in ends)

    found = sorted(known, key=likeness, reverse=True)[:_MOST_NEAREST]
    return f"{'is' if len(found) == 1 else 'are'} {', '.join(found)}" if found else ""
