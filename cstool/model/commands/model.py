"""`cstool model`: the models that come with the program, each a stock params file."""

from dataclasses import asdict
from textwrap import fill
from typing import Annotated, Any

from cstool.foundation.terminal.command import command, new_group
from cstool.foundation.terminal.options import JsonOption, argument
from cstool.foundation.terminal.render import print_facts, print_json, print_table
from cstool.foundation.words import bytes_text
from cstool.model.commands.completion import complete_stock
from cstool.model.verbs.stock import stock_model, stock_models

model_app = new_group(
    "List and describe the models that come with cstool.", "cstool model list", "cstool model describe gpt_tiny"
)


@command(model_app, "list", "cstool model list", "cstool model list --json")
def list_(as_json: JsonOption = False) -> None:
    """List the stock models, the smallest first; all can stand behind --params."""
    documents = [asdict(model) for model in stock_models()]
    if as_json:
        print_json({"models": documents})
        return
    columns = ("name", "model", "parameters", "layers", "width", "heads", "tokens", "batch")
    rows = [tuple(_text(document[column]) for column in columns) for document in documents]
    print_table(columns, rows, right=columns[2:])
    print("\n`cstool model describe NAME` tells more, `cstool config pull NAME` writes a params file to change.")


@command(model_app, "describe", "cstool model describe gpt_tiny")
def describe(
    name: Annotated[str, argument("NAME", "Stock model; `cstool model list` names them all.", complete_stock)],
    as_json: JsonOption = False,
) -> None:
    """Describe a stock model: its kind, shape, optimizer and data, and the next command."""
    document = asdict(stock_model(name))
    if as_json:
        print_json(document)
        return
    print(fill(document["description"], 100, break_on_hyphens=False))
    print()
    memory = document["state_bytes"]
    facts = {
        "model": document["model"],
        "parameters": f"{document['parameters']:,}",
        "layers": _text(document["layers"]),
        "width": _text(document["width"]),
        "heads": _text(document["heads"]),
        "feed-forward": _text(document["feed_forward"]),
        "vocabulary": _text(document["vocabulary"]),
        "tokens a sample": _text(document["tokens"]),
        "batch": f"{_text(document['batch'])} samples",
        "optimizer": document["optimizer"],
        "steps": _text(document["max_steps"]),
        "data": document["data"],
        "MemoryX": f"{bytes_text(memory)} of weights, gradients and optimizer state",
    }
    print_facts({key: text for key, text in facts.items() if text not in ("", "-")})
    print()
    print_facts(
        {
            "copy": f"cstool config pull {name}",
            "train": f"cstool run --params {name}",
            "count": f"cstool config stats {name}",
            "plan": f"cstool estimate --params {name}",
        }
    )


def _text(value: Any) -> str:
    """Return a value as a table has it."""
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, int):
        return f"{value:,}"
    return "-" if value is None else str(value)
