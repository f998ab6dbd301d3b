"""Train a model with the vendor's own Trainer, its own optimizers and its own classes of models, on the CPU.

Needs the environment that `make_vendor_curves.py` describes. It imports nothing of cstool. What the vendor's packages
import but do not need here is absent: its library for the wafer, which wants one release of PyTorch, and packages for
pictures, chat and harnesses. Names asked of those are classes without a body.
"""

from __future__ import annotations

import dataclasses
import importlib.abc
import importlib.machinery
import re
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree

ABSENT = (
    "cerebras.pytorch.lib.cerebras_pytorch_lib",
    "cerebras.modelzoo.trainer.extensions",
    "datasets",
    "slack_sdk",
    "spacy",
    "torchvision",
)

Array = np.ndarray[Any, Any]


class _Nothing(type):
    """A class of any name, with classes of any name in it. Called, it is `None`: no annotation, nothing set."""

    def __getattr__(cls, name: str) -> _Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Nothing(name, (), {})
        setattr(cls, name, made)
        return made

    def __call__(cls, *arguments: object, **keywords: object) -> None:
        return None


class _Absent(types.ModuleType):
    def __getattr__(self, name: str) -> _Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Nothing(name, (), {})
        setattr(self, name, made)
        return made


class _AbsentModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if any(name == absent or name.startswith(f"{absent}.") for absent in ABSENT):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Absent(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Leave the module empty."""


def import_vendor(model_zoo: Path) -> str:
    """Make the vendor's packages importable and return the version of cerebras_pytorch.

    Args:
        model_zoo: folder of a checkout of the Model Zoo, with src/cerebras/modelzoo in it
    """
    sys.meta_path.insert(0, _AbsentModules())
    import cerebras

    cerebras.__path__ = [*cerebras.__path__, str(model_zoo / "src" / "cerebras")]
    import cerebras.modelzoo
    import cerebras.pytorch
    from cerebras.modelzoo.trainer import validate

    # `dataclasses.replace` wants the fields that a TreeSpec has in PyTorch 2.4, which the vendor asks for.
    validate.dataclasses = types.SimpleNamespace(**{**vars(dataclasses), "replace": _replaced})
    return cerebras.pytorch.__version__


def _replaced(spec: Any, *, type: type, children_specs: list[Any]) -> Any:
    return _pytree.TreeSpec(type, spec.context, children_specs)


def train(
    params: Mapping[str, Any],
    draw: Callable[[Mapping[str, tuple[int, ...]]], Mapping[str, Array]],
    batches: Sequence[Mapping[str, Array] | tuple[Array, ...]] | None = None,
) -> list[float]:
    """Train with the params of one trainer from weights of the caller's, and return the loss of every step.

    Args:
        params: what a params file holds
        draw: shapes of the weights by name -> the weights; a tied weight counts once
        batches: what the model is called with, step by step; None for what the data loader of the params reads
    """
    from cerebras.modelzoo.trainer import utils
    from cerebras.modelzoo.trainer.validate import validate_trainer_params

    (config,) = validate_trainer_params(dict(params))
    trainer = utils.configure_trainer_from_config(config, "train")
    parameters = dict(trainer.model.named_parameters())
    # Beside adapters all else is frozen, but has weights.
    has_adapters = any(name.endswith(".lora_A") for name in parameters)
    named = {_name(name): each for name, each in parameters.items() if each.requires_grad or has_adapters}
    initial = draw({name: tuple(parameter.shape) for name, parameter in named.items()})
    with torch.no_grad():
        for name, parameter in named.items():
            parameter.copy_(torch.from_numpy(initial[name]))
    losses: list[float] = []
    trainer.model.register_forward_hook(lambda model, inputs, outputs: losses.append(outputs.item()))
    if batches is None:
        trainer.fit(utils.create_dataloader_from_config(config.fit.train_dataloader), None, None)
    else:
        from cerebras.pytorch.utils.data.dataloader import DataLoader

        tensors = [_pytree.tree_map(torch.from_numpy, batch) for batch in batches]
        trainer.fit(DataLoader(lambda: tensors), None, None)
    return losses


def _name(parameter: str) -> str:
    """Of the two names that the vendor's checkpoints have for the last norm return that of the decoder.

    Those of a model with others inside begin with which of them it is.
    """
    outer, inner = re.fullmatch(r"((?:policy_model|ref_model)\.model\.|(?:model\.)?)(.*)", parameter).groups()  # type: ignore[union-attr]
    prefix = "" if outer == "model." else outer
    return prefix + re.sub(r"^ln_f\.", "transformer_decoder.norm.", inner)
