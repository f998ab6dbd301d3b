"""`cstool config`: the settings of a params file, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cstool.foundation.terminal.command import command, new_group
from cstool.foundation.terminal.options import JsonOption, argument, flag, option
from cstool.foundation.terminal.render import print_facts, print_json, print_line, print_table
from cstool.foundation.words import NO_EFFECT, bytes_text, counted
from cstool.model.commands.completion import complete_params, complete_stock
from cstool.model.commands.options import MODEL_FILE
from cstool.model.verbs import configs

if TYPE_CHECKING:
    from cstool.model.graphs.statistics import Part

config_app = new_group(
    "Check, explain and convert params files.", "cstool config validate gpt_tiny", "cstool config stats gpt3_175b"
)

FileArgument = Annotated[Path, argument("FILE", MODEL_FILE, complete_params)]
SetOption = Annotated[
    list[str] | None, option("--set", "KEY=VALUE", "Override any key of the file, by its dotted path.")
]


@command(config_app, "validate", "cstool config validate gpt2_small")
def validate(file: FileArgument, set_: SetOption = None, as_json: JsonOption = False) -> None:
    """Check a params file as a run would: all mistakes at once, and keys without effect."""
    found = configs.validate_config(file, set_ or ())
    if as_json:
        models = [{"model": name, "parameters": count} for name, count in found.models]
        notes = {"warnings": found.warnings, "notes": found.notes}
        print_json({"path": file, "valid": True, "trainers": models, **notes})
        return
    for line in (*(f"warning: {warning}" for warning in found.warnings), *found.notes):
        print_line(line)
    if unused := sum(NO_EFFECT in note for note in found.notes):
        print(f"Without effect: {counted(unused, 'key')} of the file.")
    print("Config validation was successful!")


@command(config_app, "show", "cstool config show gpt_tiny --set trainer.init.seed=2")
def show(file: FileArgument, set_: SetOption = None, as_json: JsonOption = False) -> None:
    """Print a params file as it is understood: all defaults filled in, paths absolute, overrides applied."""
    document = configs.resolve_config(file, set_ or ())
    if as_json:
        print_json(document)
    else:
        print(configs.yaml_text(document), end="")


@command(config_app, "stats", "cstool config stats gpt3_175b")
def stats(file: FileArgument, set_: SetOption = None, as_json: JsonOption = False) -> None:
    """Count parameters, bytes and floating-point operations of a model.

    FLOPs count products of matrices alone: a multiply-add is two, and attention counts the pairs that its mask
    allows.
    """
    trainers = configs.config_statistics(file, set_ or ())
    if as_json:
        print_json({"path": file, "trainers": [_statistics_document(trainer) for trainer in trainers]})
        return
    for number, trainer in enumerate(trainers, start=1):
        if number > 1:
            print()
        _print_statistics(f"{file}, trainer {number} of {len(trainers)}" if len(trainers) > 1 else str(file), trainer)


@command(config_app, "convert_legacy", "cstool config convert_legacy params_gpt2.yaml --out gpt2.yaml")
def convert_legacy(
    file: FileArgument,
    out: Annotated[Path | None, option("--out -o", "OUT", "File to write, instead of {FILE}_v2.yaml.")] = None,
) -> None:
    """Write a params file of the older layout (train_input, model, runconfig) in the trainer layout.

    Missing keys stay missing. Paths stay as they are; in another folder they become absolute.
    """
    target = file.parent / f"{file.stem}_v2.yaml" if out is None else out
    mistakes = configs.convert_legacy(file, target)
    print_line(f"Converted {file} to {target}")
    if mistakes is not None:
        print(f"warning: {target} needs mending:\n{mistakes}")


@command(config_app, "keys", "cstool config keys > keys.md")
def keys(as_json: JsonOption = False) -> None:
    """Print every key of params files, with its values and effect, as Markdown."""
    tables, legacy = configs.config_keys()
    if as_json:
        print_json({"trainer": tables, "legacy": legacy})
        return
    places = (place.partition(" (name: ")[2].rstrip(")") for table in tables for place in table.places)
    classes = [names for names in places if ", " in names]
    print(_KEYS_TITLE.format(sequential=classes[0], parallel=classes[1]))
    print("\n| key | fate | values | default |\n|---|---|---|---|")
    written = set()
    for table in (*tables, *legacy):
        place, space, kind = table.places[0].partition(" ")
        above = "" if place == "sections" else f"{place}."
        # The first name of a class stands for all of them.
        which = f"{kind.partition(',')[0]} ...)" if "," in kind else kind
        for key in table.keys:
            row = (f"`{above}{key.name}`", f"{key.fate} | {key.values} | {key.default}")
            if row not in written:
                written.add(row)
                print(f"| {row[0]}{space}{which} | {row[1]} |")
    print("\n## Keys that stand in several places\n")
    for table in tables:
        if len(table.places) > 1:
            first, *others = map(_code, table.places)
            print(f"- those of {first} at {', '.join(others)} too")


def _code(place: str) -> str:
    """Return a place as Markdown, its key as code: *.* is no emphasis."""
    key, space, kind = place.partition(" ")
    return f"`{key}`{space}{kind}"


_KEYS_TITLE = """# The keys of a params file

Written by `cstool config keys` from the checks themselves; `make golden` writes it again. First the trainer layout,
section by section, then the older one, whose keys have the fates of what they become (`cstool config convert_legacy`
writes it so).

- *acted on*: the value counts. What stands at *values* can be had; anything else is an error, with file and line.
- *noted*: the vendor's, accepted, has no effect here; a run and `cstool config validate` say so. Those of a job
  count where one is submitted, by `cstool job submit` or `cstool run --appliance`.
- *refused*: the vendor's, would change the result, cannot be had. What stands at *values* (and null) turns it off.
- *see below*: a section; its keys follow.
- *(name: gpt2 ...)*: of GPT-2 and its kin, which are {sequential}.
- *(name: gptj ...)*: of GPT-J and its kin, which are {parallel}. They have the keys of GPT-2 and its kin, too;
  only what differs stands again. So have those that tell classes, *(name: gpt2/classifier ...)*.
- Any other key is an error. A key that is null counts as not given, but where null is among the values. `*` is any
  entry of a list, or the name of one."""


@command(
    config_app,
    "pull",
    "cstool config pull gpt_tiny",
    "cstool config pull gpt_tiny --out mine.yaml --set trainer.init.loop.max_steps=300",
)
def pull(
    name: Annotated[str, argument("NAME", "Stock params file; `cstool model list` names them all.", complete_stock)],
    out: Annotated[
        Path | None, option("--out -o", "OUT", "File to write, or a folder for it, instead of NAME.yaml.")
    ] = None,
    set_: Annotated[
        list[str] | None, option("--set", "KEY=VALUE", "Another value for a key, by its dotted path.")
    ] = None,
    force: Annotated[bool, flag("--force", "Replace an existing file.")] = False,
) -> None:
    """Write a stock params file, with its comments, into the working directory, to edit it there.

    Data is looked for in the working directory.
    """
    target = configs.pull_config(name, out, set_ or (), replaces=force)
    print(f"{target}: written. `cstool run --params {target}` trains it.")


def _print_statistics(which: str, trainer: configs.ConfigStatistics) -> None:
    statistics, batch_size = trainer.counts, trainer.batch_size
    tokens, parameters, size_bytes = statistics.tokens, statistics.parameters(), trainer.element_bytes
    unit, length = ("token", f", {tokens:,} tokens per sample") if tokens > 1 else ("sample", "")
    length += "" if statistics.targets is None else f", {statistics.targets:,} of its target"
    print_line(f"{which}: {trainer.model}{length}. All numbers are counts; nothing is measured.")
    print()

    columns = ("part", "layers", "weights", "parameters", "share")
    rows: list[tuple[str, ...]] = [
        (
            part.name,
            f"{part.count:,}",
            _shapes_text(part),
            f"{part.parameters:,}",
            f"{part.parameters / parameters:.1%}",
        )
        for part in statistics.parts
    ]
    sums = {"all": parameters}
    if embedding := statistics.parameters("embedding"):
        output = statistics.parameters("output")
        sums |= {"embeddings": embedding} | ({"output layer": output} if output else {})
        sums["N, the rest"] = statistics.parameters("inner")
    rows += [(name, "", "", f"{count:,}", f"{count / parameters:.1%}") for name, count in sums.items()]
    print_table(columns, rows, right=("layers", "parameters", "share"))

    print()
    rows = [
        (name, f"{_arrays_text(count, of)} x {size_bytes}", bytes_text(count * size_bytes))
        for name, count in trainer.memory.items()
        for of in (parameters if name == "weights" else statistics.trained,)
    ]
    print_table(("in float32", "bytes", "size"), rows, right=("bytes", "size"))

    print()
    total = statistics.sample_flops
    names = (f"FLOPs per {unit}", "forward", "backward", "both", "share")
    rows = [
        (
            name,
            *(f"{count / tokens:,.0f}" for count in (flops.forward, flops.backward, flops.total)),
            f"{flops.total / total.total:.1%}",
        )
        for name, flops in (*statistics.flops.items(), ("all", total))
    ]
    print_table(names, rows, right=names[1:])

    facts = {}
    if batch_size is not None:
        facts["FLOPs per step"] = f"{total.total * batch_size:,}, for {batch_size * tokens:,} {unit}s"
    if (rule := statistics.rule_of_six) is not None:
        facts["6 N per token"] = f"{rule:,}, which leaves out attention's pairs and the output layer"
    if facts:
        print()
        print_facts(facts)


def _statistics_document(trainer: configs.ConfigStatistics) -> dict[str, Any]:
    statistics, batch_size = trainer.counts, trainer.batch_size
    total, size_bytes = statistics.sample_flops, trainer.element_bytes
    return {
        "model": trainer.model,
        "tokens_per_sample": statistics.tokens,
        "batch_size": batch_size,
        "parts": [
            {
                "name": part.name,
                "role": part.role,
                "layers": part.count,
                "weights": [{"count": count, "shape": list(shape)} for shape, count in part.shapes.items()],
                "parameters": part.parameters,
            }
            for part in statistics.parts
        ],
        "parameters": {
            "all": statistics.parameters(),
            **{role: statistics.parameters(role) for role in ("embedding", "output", "inner")},
        },
        "bytes": {name.replace(" ", "_"): count * size_bytes for name, count in trainer.memory.items()},
        "flops_per_sample": {
            kind: {"forward": flops.forward, "backward": flops.backward}
            for kind, flops in (*statistics.flops.items(), ("all", total))
        },
        "flops_per_step": None if batch_size is None else total.total * batch_size,
        "rule_of_six_per_token": statistics.rule_of_six,
    }


def _arrays_text(count: int, size: int) -> str:
    """Write a count of numbers as a count of arrays of a size, if it is a multiple: `2 x 1,000`."""
    return f"{count // size} x {size:,}" if size and count % size == 0 else f"{count:,}"


def _shapes_text(part: Part) -> str:
    """Write shapes as `12 x (768 x 3,072), 12 x (768)`."""
    written = ((count, " x ".join(f"{size:,}" for size in shape)) for shape, count in part.shapes.items())
    return ", ".join(f"({shape})" if count == 1 else f"{count:,} x ({shape})" for count, shape in written)
