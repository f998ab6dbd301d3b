"""The report of `cstool estimate --validate`: published results beside predictions, and their errors."""

import textwrap
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from cstool.foundation.terminal.render import print_table
from cstool.plan.commands.compile_report import number_text
from cstool.plan.commands.estimate_facts import rough_text
from cstool.plan.verbs.results import Comparison, Errors, Prediction

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
    "user_tokens_per_s": "tokens/s",
    "product_cycles": "cycles",
    "allreduce_diameters_cycles": "x the hops across",
}
_TITLES = {
    "fitted": "fitted: a number of a system file comes from it; left out: off by so much, fitted to the others",
    "chosen": "chosen: a reading of the sources, or a whole number of a system file, was settled by it",
    "held out": "held out: not fitted, though most were known while the model was built; in 80%: in the range",
    "host-bound": "host-bound: hosts decide how long these take, so they are set apart",
    "headline": "headlines: what the model says of each",
}
_COLUMNS = ("result", "published", "predicted", "error")
_MORE = {"fitted": ("left out",), "held out": ("80%", "in 80%")}
"""further columns of the results of a use"""


def print_published(compared: Comparison, left_out: Mapping[str, Prediction]) -> None:
    """Print the tables, the errors, the assumptions, and the sources.

    Args:
        compared: all results
        left_out: fitted results, predicted with their number fitted to the others
    """
    print("Published results beside the model's predictions. Predictions are modelled; nothing is measured here.")
    for use, title in _TITLES.items():
        found = [prediction for prediction in compared.predictions if prediction.result.use == use]
        if not found:
            continue
        print(f"\n{title}\n")
        columns = (*_COLUMNS, *_MORE.get(use, ()), "unit", "status")
        rows = [_row(prediction, left_out, use) for prediction in found]
        print_table(columns, rows, right=(*_COLUMNS[1:], "left out", "80%"))
        if (errors := compared.errors.get(use)) is not None:
            print(f"\n{errors.count} of {len(found)} predicted: {_off(errors)} ({errors.name})")
            if use == "held out":
                for kind, part in compared.kinds.items():
                    print(f"{part.count} of kind {kind}: {_off(part)} ({part.name})")
                print(f"{compared.within} of all, {compared.within / errors.count:.0%}, are in their 80% range")
                if (first := compared.first) is not None:
                    added = f"{first.count} measured results, held out or chosen, met a model that had not seen them"
                    print(f"{added}: {_off(first)} ({first.name})")
    _print_reasons(compared)
    print("\nsays, and under which conditions\n")
    for prediction in compared.predictions:
        _print_conditions(prediction)


def _off(errors: Errors) -> str:
    return (
        f"off by {errors.median:.1%} in the median, by {errors.average:.1%} on average, by {errors.largest:.1%} at most"
    )


def _row(prediction: Prediction, left_out: Mapping[str, Prediction], use: str) -> tuple[str, ...]:
    result, predicted = prediction.result, prediction.predicted
    value = "does not fit" if predicted is None else _number(predicted)
    unit = _UNITS.get(result.quantity, result.quantity)
    shown = result.name, _number(result.published), value, _error(prediction)
    return (*shown, *_more(prediction, left_out, use), unit, result.status)


def _error(prediction: Prediction | None) -> str:
    """Return the error of a prediction; a dash for none."""
    error = None if prediction is None else prediction.error
    if error is None:
        return "-"
    return f"{error:+.1%}" if abs(error) < 2 else f"{1 + error:.3g}x"


def _more(prediction: Prediction, left_out: Mapping[str, Prediction], use: str) -> list[str]:
    """Return the texts of the further columns, `_MORE`, of a use."""
    if use == "fitted":
        return [_error(left_out.get(prediction.result.name))]
    if use != "held out":
        return []
    found = prediction.range
    range_text = "-" if found is None else f"{rough_text(found[0])} to {rough_text(found[1])}"
    return [range_text, "yes" if prediction.is_within else "no"]


def _print_reasons(compared: Comparison) -> None:
    """Print why results are far off, as far as that is known."""
    found = [each for each in compared.predictions if each.result.reason]
    if found:
        print("\nwhy some are far off, as far as that is known\n")
    for each in found:
        line = f"{each.result.name} ({_error(each)}): {each.result.reason}"
        print(textwrap.fill(line, 108, initial_indent="  ", subsequent_indent="    "))


def _print_conditions(prediction: Prediction) -> None:
    result = prediction.result
    print(f"  {result.name}: {result.says}")
    lines = [f"source: {result.source}", _conditions(prediction)]
    if result.assumed:
        lines.append(f"assumed: {'; '.join(result.assumed)}")
    if result.first_error is not None:
        lines.append(f"off by {result.first_error:+.1%} when it was added, before anything was changed for it")
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
    if result.prompt_tokens:
        parts.append(f"one user, {result.prompt_tokens:,} tokens in, {result.new_tokens:,} out")
    if result.product:
        tokens, inputs, outputs = result.product
        parts.append(f"{tokens:,} x {inputs:,} times {inputs:,} x {outputs:,} on {result.size} x {result.size} PEs")
    if result.groups is not None:
        parts.append(f"{result.groups} groups of PEs")
    parts += [f"{key} {number:g}" for key, number in result.numbers.items()]
    if result.software is not None:
        parts.append(f"hosts as of release {result.software}")
    if result.fits:
        parts.append(f"fits {result.fits} of {result.system}")
    return f"under: {', '.join(parts)}"


def published_document(compared: Comparison, left_out: Mapping[str, Prediction]) -> dict[str, Any]:
    """Return all of it ready for JSON; predictions are modelled; arguments as of `print_published`."""
    return {
        "results": [
            asdict(prediction.result)
            | {"modelled": prediction.predicted, "error": prediction.error, "note": prediction.note}
            | {"range": prediction.range, "band": None if prediction.band is None else asdict(prediction.band)}
            | {"left_out": None if (other := left_out.get(prediction.result.name)) is None else other.predicted}
            for prediction in compared.predictions
        ],
        "held_out": {kind: asdict(errors) for kind, errors in compared.kinds.items()},
        "held_out_within_range": compared.within,
        "first": None if compared.first is None else asdict(compared.first),
        "errors": {use: None if errors is None else asdict(errors) for use, errors in compared.errors.items()},
    }


def _number(value: float) -> str:
    return f"{value:.4g}" if value >= 1e9 else number_text(value)
