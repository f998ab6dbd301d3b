"""The callbacks with an effect, and the other sections of a file that they must agree with."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from cstool.foundation.yaml_lines.document import Key
from cstool.foundation.yaml_lines.problems import Problems
from cstool.foundation.yaml_lines.section import Section
from cstool.model.params.sections import hooks, trainer
from cstool.model.params.sections.dataloader import DataloaderParams, data_set_names
from cstool.model.params.sections.fields import METRICS
from cstool.model.params.sections.hooks import ALL_STATES, STATES
from cstool.model.params.sections.model import ModelParams
from cstool.model.params.sections.sparsity import SparsityParams

_HALVES = ("accuracy_matched", "accuracy_mismatched")
"""metrics of evaluations on data in two halves"""


@dataclass
class Callbacks:
    """Settings by callbacks; of two of the same kind, the last one counts, but for SaveCheckpointState."""

    states: frozenset[str] = ALL_STATES
    keep: int | None = None
    saved: list[hooks.SaveCheckpointState] = field(default_factory=list)
    stopping: hooks.EarlyStopping | None = None
    lora: hooks.Lora | None = None
    computes_norms: bool = False
    places: dict[int, Key] = field(default_factory=dict)
    """id of a section -> its key"""

    def take(self, section: Section, key: Key) -> None:
        """Take the arguments of a callback that stands at a key."""
        self.places[id(section)] = key
        match section:
            case hooks.LoadCheckpointStates():
                self.states = section.load_checkpoint_states
            case hooks.KeepNCheckpoints():
                self.keep = section.n
            case hooks.SaveCheckpointState():
                self.saved.append(section)
            case hooks.EarlyStopping():
                self.stopping = section
            case hooks.Lora():
                self.lora = section


def check_callbacks(
    callbacks: Callbacks,
    problems: Problems,
    loop: trainer.LoopParams,
    checkpoint: trainer.CheckpointParams,
    model: ModelParams | None,
    train: DataloaderParams | None,
    val: Sequence[DataloaderParams],
    sparsity: Sequence[SparsityParams] | None,
) -> tuple[str, ...]:
    """Check callbacks against the rest of a file, and return warnings about callbacks without an effect.

    Args:
        callbacks: the ones with an effect
        problems: found ones are added
        loop: when there are evaluations
        checkpoint: when there are checkpoints, and their names
        model: None if it is wrong
        train: training data; None if there is none
        val: data of evaluations between training steps
        sparsity: groups of sparse weights; None if they are wrong
    """
    warnings: list[str] = []
    names = [callback.file_name(checkpoint.checkpoint_name) for callback in callbacks.saved]
    for index, callback in enumerate(callbacks.saved):
        key = callbacks.places[id(callback)]
        if checkpoint.steps is None:
            rule = "needs checkpoints, and checkpoint.steps is missing"
            problems.add(key, rule, hint="checkpoint.steps: N saves them")
        elif (made := loop.checkpoints(checkpoint.steps)) is not None and callback.k > made:
            where, name = problems.where((*key, "k"))
            warnings.append(f"{where}: {name} is {callback.k}, and the run makes {made}: nothing is saved beside them")
        if sparsity and "model" not in callback.checkpoint_states:
            states = ",".join(state for state in STATES if state in callback.checkpoint_states)
            problems.add((*key, "checkpoint_states"), "must have model in it where weights are sparse", states)
        if _is_checkpoint(names[index].replace("{step}", "1"), checkpoint.checkpoint_name):
            rule = f"must not make the name of a checkpoint ({checkpoint.checkpoint_name})"
            problems.add((*key, "checkpoint_name"), rule, callback.checkpoint_name)
        if names[index] in names[:index]:
            rule = f"must be another one than that of the SaveCheckpointState before it, both make {names[index]}"
            problems.add((*key, "checkpoint_name"), rule)
    if callbacks.stopping is not None:
        place, loaders = callbacks.places[id(callbacks.stopping)], [*([] if train is None else [train]), *val]
        metrics = (METRICS if model is None else model.metrics) + _HALVES * all(each.has_halves for each in loaders)
        _check_stopping(callbacks.stopping, place, problems, loop, metrics, val)
    return tuple(warnings)


def _is_checkpoint(name: str, template: str) -> bool:
    stem, _, suffix = template.rpartition(".") if "." in template else (template, "", "")
    before, after = map(re.escape, stem.split("{step}")) if "{step}" in stem else (re.escape(stem), "")
    ending = re.escape(template[len(stem) :])
    return re.fullmatch(rf"{before}[0-9]+{after}(_[0-9]{{8}}_[0-9]{{6}})?{ending}", name) is not None


def _check_stopping(
    stopping: hooks.EarlyStopping,
    key: Key,
    problems: Problems,
    loop: trainer.LoopParams,
    metrics: Sequence[str],
    val: Sequence[DataloaderParams],
) -> None:
    if not val:
        problems.add(key, "needs evaluations, and trainer.fit.val_dataloader is missing")
        return
    if not loop.eval_frequency or loop.eval_frequency == 1.0 and isinstance(loop.eval_frequency, float):
        got = "missing, null or 0" if not loop.eval_frequency else "1.0, the end of the run"
        problems.add(
            key,
            f"needs evaluations on the way, and loop.eval_frequency is {got}",
            hint="eval_frequency: 100 evaluates after every 100 steps, 0.1 after every tenth of the run",
        )
    names = data_set_names(val)
    prefixes = [""] if len(names) == 1 else [f"{name}/" for name in names]
    known = [f"eval/{prefix}{metric}" for prefix in prefixes for metric in metrics]
    if stopping.monitor not in known:
        rule = "must be a metric of the evaluations"
        problems.add((*key, "monitor"), rule, stopping.monitor, f"they are {', '.join(known)}")
