"""Record the rows that the vendor's hooks and token generators make of the records of `preprocessing_cases`.

    python -m tests.reference.make_vendor_preprocessing MODEL_ZOO

Needs numpy, pydantic, pyyaml, typing_extensions, ftfy, tokenizers and transformers; MODEL_ZOO is a folder with the
Model Zoo 2.10.0. It imports nothing of cstool. What the vendor's modules import but do not need here is absent. One
fault of theirs is mended: the token generator of nlg reads a variable that it never sets.
"""

import argparse
import copy
import importlib.abc
import importlib.machinery
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import transformers

from tests.reference.preprocessing_cases import CASES, HOOKS, PLACE, write_tokenizer
from tests.reference.recorded_file import as_text

ABSENT = ("cerebras.modelzoo.config", "PIL", "rich", "tqdm", "datasets")
_VENDOR = "cerebras.modelzoo.data_preparation.data_preprocessing"


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules in which each name is an empty class."""

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if any(name == absent or name.startswith(f"{absent}.") for absent in ABSENT):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        module.__getattr__ = lambda name: type(name, (), {})  # type: ignore[method-assign]


def generator_of(case: dict[str, Any], tokenizer: Any, folder: str) -> Any:
    """The vendor's token generator of a case."""
    names = {
        "finetuning": ("finetuning_token_generator", "FinetuningTokenGenerator"),
        "pretraining": ("pretraining_token_generator", "PretrainingTokenGenerator"),
        "dpo": ("dpo_token_generator", "DPOTokenGenerator"),
        "nlg": ("nlg_token_generator", "NLGTokenGenerator"),
    }
    module, name = names[case["mode"]]
    found = importlib.import_module(f"{_VENDOR}.{module}")
    if case["mode"] == "nlg":
        found.successful = 1
        return found.NLGTokenGenerator(case["processing"]["max_seq_length"])
    params = {key: copy.deepcopy(case[key]) for key in ("processing", "dataset")} | {"setup": {"output_dir": folder}}
    return getattr(found, name)(params, tokenizer, tokenizer.eos_token_id, tokenizer.pad_token_id)


def rows_of(case: dict[str, Any], folder: str) -> list[list[str]]:
    """Rows of a case, each feature as numbers with spaces between."""
    write_tokenizer(Path(folder), template=case["template"], begins=case["begins"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    generator = generator_of(case, tokenizer, folder)
    hook = getattr(importlib.import_module(HOOKS.removesuffix(":")), case["hook"])
    keys = [value for key, value in case["kwargs"].items() if key.endswith("_key")]
    rows: list[Any] = []
    for record in case["records"]:
        # As the reader of files does.
        given = {key: record.get(key) for key in keys}
        given = {key: str(value) if isinstance(value, int) else value for key, value in given.items()}
        found = hook(given, **case["kwargs"])
        made, _ = generator.encode(found) if found else ({}, {})
        rows += [*made.get("data", [])]
    if case["mode"] == "pretraining" and generator.prefix_doc is not None:
        made, _ = generator.encode_leftover_prefix([generator.prefix_doc])
        rows += [*made.get("data", [])]
    return [[" ".join(map(str, feature)) for feature in row.tolist()] for row in rows]


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model_zoo", type=Path)
    sys.path.insert(0, str(parser.parse_args().model_zoo / "src"))
    sys.meta_path.insert(0, _Absent())
    found: dict[str, Any] = {"made with": f"Model Zoo 2.10.0, transformers {transformers.__version__}", "rows": {}}
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            found["rows"][name] = rows_of(case, folder)
    PLACE.write_text(as_text(found))


if __name__ == "__main__":
    main()
