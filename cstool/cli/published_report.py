"""What `cstool estimate --validate` tells: published results beside predictions, and how far these are off."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cstool.cli.compile_report import number_text
from cstool.cli.render import print_table

if TYPE_CHECKING:
    from cstool.verbs.results import Prediction, PublishedComparison

_UNITS = {
    "samples_per_s": "samples/s",
    "forward_samples_per_s": "samples/s",
    "relative_utilization": "x the share of peak",
    "speedup": "x",
    "sparse_speedup": "x",
    "days": "days",
    "parameters": "parameters",
    "hidden_size": "wide",
    "peak_flops": "FLOP/s",
    "matvec_cycles": "cycles",
}
_TITLES = {
    "fitted": "fitted: the efficiency of a PE comes from it",
    "chosen": "chosen: that weights of 16 bits are streamed in each pass, not of 32, was settled by it",
    "held out": "held out: nothing was fitted to these",
    "headline": "headlines: what the model says of each",
}
_COLUMNS = ("result", "published", "predicted", "error", "unit", "status")


def print_published(compared: PublishedComparison) -> None:
    """Print the tables, the errors, what was assumed, and the sources."""
    print("Published results beside the model's predictions. Predictions are modelled; nothing is measured here.")
    for use, title in _TITLES.items():
        print(f"\n{title}\n")
        found = [prediction for prediction in compared.predictions if prediction.result.use == use]
        print_table(_COLUMNS, [_row(prediction) for prediction in found], right=("published", "predicted", "error"))
        if (errors := compared.errors.get(use)) is not None:
            print(
                f"\n{errors.count} of {len(found)} predicted: off by {errors.median:.1%} in the median, by "
                f"{errors.average:.1%} on average, by {errors.largest:.1%} at most ({errors.name})"
            )
    print("\nsays, and under which conditions\n")
    for prediction in compared.predictions:
        _print_conditions(prediction)


def _row(prediction: Prediction) -> tuple[str, ...]:
    result, predicted = prediction.result, prediction.predicted
    error = prediction.error
    if error is None:
        off = "-"
    else:
        off = f"{error:+.1%}" if abs(error) < 2 else f"{1 + error:.3g}x"
    value = "does not fit" if predicted is None else _number(predicted)
    return result.name, _number(result.published), value, off, _UNITS[result.quantity], result.status


def _print_conditions(prediction: Prediction) -> None:
    result = prediction.result
    print(f"  {result.name}: {result.says}")
    lines = [f"source: {result.source}", _conditions(prediction)]
    if result.assumed:
        lines.append(f"assumed: {'; '.join(result.assumed)}")
    if prediction.note:
        lines.append(f"the model: {prediction.note}")
    for line in lines:
        print(textwrap.fill(line, 100, initial_indent="      ", subsequent_indent="        "))


def _conditions(prediction: Prediction) -> str:
    result = prediction.result
    parts = [f"{result.num_csx:,} x {result.system}"]
    if result.batch_per_csx is not None:
        parts.append(f"{result.batch_per_csx:,} samples to a system")
    if result.batch_size is not None:
        parts.append(f"batches of {result.batch_size:,} shared out")
    if result.sparsity:
        parts.append(f"{result.sparsity:.0%} of the linear layers zero")
    if result.tokens is not None:
        parts.append(f"{result.tokens:,} tokens")
    return f"under: {', '.join(parts)}"


def published_document(compared: PublishedComparison) -> dict[str, Any]:
    """Return all of it ready for JSON; predictions are modelled."""
    return {
        "results": [
            asdict(prediction.result)
            | {"modelled": prediction.predicted, "error": prediction.error, "note": prediction.note}
            for prediction in compared.predictions
        ],
        "errors": {use: None if errors is None else asdict(errors) for use, errors in compared.errors.items()},
    }


def _number(value: float) -> str:
    return f"{value:.4g}" if value >= 1e9 else number_text(value)
