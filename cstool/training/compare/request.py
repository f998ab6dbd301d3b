"""The request for a validation, and the params of the runs that answer it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cstool.foundation.errors import CstoolError, ParamsError
from cstool.model.params import ALL_STATES, DpoParams, Params, SparsityParams
from cstool.model.params.sections.sparsity import ConstantShare

NUM_STEPS = 100
"""largest number of trained steps, if none is given"""
MAX_LOSS_GAP = 0.1
"""largest excess of the held-out loss of the sparse run over the dense run's [nats], if none is given:
a tenth of a nat makes the perplexity 10.5 % larger"""


@dataclass(frozen=True)
class Request:
    """The settings of a comparison.

    Args:
        sparsity: share of zeros; None: as in the params
        num_steps: steps of each run; None for the steps of the params, at most `NUM_STEPS`
        max_loss_gap: largest excess of the held-out loss of the sparse run over the dense run's [nats]
        tolerance: relative difference that losses and weights may have between sparse and dense kernels; None for one
            that grows with the steps
        sweep: further shares of zeros whose cost and loss are measured
        lanes: host threads; None to choose
        model_dir: folder of the runs, where they stay; None for a temporary folder

    Raises:
        CstoolError: a number is out of its range
    """

    sparsity: float | None = None
    num_steps: int | None = None
    max_loss_gap: float = MAX_LOSS_GAP
    tolerance: float | None = None
    sweep: tuple[float, ...] = ()
    lanes: int | None = None
    model_dir: Path | None = None

    def __post_init__(self) -> None:
        for flag, shares in (("--sparsity", (self.sparsity,)), ("--sweep", self.sweep)):
            for share in shares:
                if share is not None and not 0 < share < 1:
                    hint = "it is the share of zeros: 0.9 leaves a tenth of the weights"
                    raise CstoolError(f"{flag}: must be greater than 0 and less than 1, got {share:g}", hint)
        if self.num_steps is not None and self.num_steps < 1:
            raise CstoolError(f"--num_steps: must be at least 1, got {self.num_steps}")
        if not self.max_loss_gap >= 0:
            hint = "0.1 lets the sparse run lose a tenth of a nat"
            raise CstoolError(f"--max_loss_gap: must be at least 0, got {self.max_loss_gap:g}", hint)
        if self.tolerance is not None and not self.tolerance > 0:
            raise CstoolError(f"--tolerance: must be greater than 0, got {self.tolerance:g}", "for example 1e-5")

    def steps(self, params: Params) -> int:
        """Steps that each run trains."""
        loop = params.loop
        return self.num_steps or min(loop.num_steps or loop.max_steps or NUM_STEPS, NUM_STEPS)


def sparse_groups(params: Params, sparsity: float | None, flag: str) -> tuple[SparsityParams, ...]:
    """Return the groups of sparse weights to validate.

    A share that was typed takes the place of the share of every group of the file. In a file without groups, it means
    static zeros drawn at random in every matrix that the vendor's filter takes by default.

    Args:
        params: as the file has them
        sparsity: the typed value; None: as in the file
        flag: of that value

    Raises:
        CstoolError: there is none; or one was typed, and the file has a schedule where it should go, or a model or an
            optimizer of dense weights alone
    """
    if not params.sparsity and sparsity is None:
        raise CstoolError(
            f"{params.path}: must ask for sparsity, which validate compares with dense: there is no "
            "trainer.init.sparsity, and no --sparsity",
            f"add --sparsity 0.9; to evaluate a checkpoint, `cstool run --mode eval --params {params.path}`",
        )
    if sparsity is None:
        return params.sparsity
    if isinstance(params.model, DpoParams):
        raise CstoolError(
            f"{flag}: must not be given with dpo, got {sparsity:g}",
            "a policy with zeros would be held against a reference without them",
        )
    if params.optimizer is not None and params.optimizer.no_sparsity:
        rule = f"must not be given with {type(params.optimizer).__name__}"
        raise CstoolError(f"{flag}: {rule}, got {sparsity:g}", params.optimizer.no_sparsity)
    if not params.sparsity:
        return (SparsityParams.model_validate({"sparsity": sparsity}),)
    label, key = params.sparsity_place
    for number, group in enumerate(params.sparsity):
        if not isinstance(group.sparsity, float | ConstantShare):
            where = key if len(params.sparsity) == 1 else f"{key}.{number}"
            got = "none" if group.sparsity is None else "a schedule"
            raise CstoolError(
                f"{label}: {where}.sparsity must be a number for {flag} to take its place, got {got}",
                f"leave out {flag} to validate what the file asks for",
            )
    return tuple(group.model_copy(update={"sparsity": sparsity}) for group in params.sparsity)


def run_params(params: Params, groups: Sequence[SparsityParams], model_dir: Path, last_step: int) -> Params:
    """Return the params of a run that begins afresh, evaluates at its end alone, and goes on from its own checkpoints.

    Args:
        params: as the file has them
        groups: of sparse weights; none for a dense run
        model_dir: of the run
        last_step: up to which it trains; it saves a checkpoint there
    """
    loop = {"max_steps": last_step, "num_steps": None, "num_epochs": None, "eval_frequency": 0}
    checkpoint = {
        "steps": last_step,
        "autoload_last_checkpoint": True,
        "save_initial_checkpoint": False,
        "checkpoint_name": "checkpoint_{step}.mdl",
    }
    return replace(
        params,
        sparsity=tuple(groups),
        model_dir=model_dir,
        loop=params.loop.model_copy(update=loop),
        checkpoint=params.checkpoint.model_copy(update=checkpoint),
        # The times of steps, and memory, are compared.
        memoryx=params.memoryx.model_copy(update={"store": "ram"}),
        checkpoint_path=None,
        eval_checkpoint_path=None,
        events_dir=None,
        computes_norms=False,
        val_dataloaders=params.val_dataloaders[:1],
        eval_dataloaders=(),
        eval_all_dataloaders=(),
        eval_all_checkpoint_paths=(),
        load_checkpoint_states=ALL_STATES,
        keep_checkpoints=None,
        saved_states=(),
        early_stopping=None,
        compile_only=False,
        validate_only=False,
        notes=(),
        warnings=(),
    )


def check_params(params: Params) -> tuple[str, ...]:
    """Check that a file can be validated, and return notes on its keys that do not count.

    Raises:
        ParamsError: it has no training data, or no data held out
    """
    params.dataloaders("train")
    if not params.val_dataloaders:
        rule = "trainer.fit.val_dataloader is missing: validate compares the losses on data that are held out"
        raise ParamsError([(f"{params.path}: {rule}", None)])
    notes = []
    if params.checkpoint_path is not None:
        notes.append("trainer.fit.ckpt_path does not count: every run begins with the weights that the seed gives")
    if len(params.val_dataloaders) > 1:
        notes.append("of several val_dataloaders the first counts: one loss is compared with one")
    if params.early_stopping is not None:
        notes.append("EarlyStopping does not count: every run trains as many steps")
    if params.memoryx.store == "file":
        notes.append("memoryx does not count: the runs keep weights and optimizer state in main memory")
    return tuple(notes)
