"""The fabric in place of this host's kernels, for `cstool run --executor fabric`: checks, and the device of a model."""

from pathlib import Path

from cstool.cli.verbs.gpt_device import GptDevice
from cstool.cli.verbs.network_device import NetworkDevice
from cstool.foundation.errors import CompileError, CstoolError
from cstool.model.graphs import declared_form, trained_graph
from cstool.model.ir import OpKind
from cstool.model.params import Params
from cstool.training.machine.device import Device


def check_run(mode: str, ranks: int, trace: Path | None) -> None:
    """Check that a run can be on the fabric.

    Raises:
        CstoolError: naming the flag that does not go with it
    """
    for flag, found, rule in (
        ("--mode", mode if mode == "infer" else None, "train, eval, train_and_eval or eval_all"),
        ("ranks", ranks if ranks > 1 else None, "1"),
        ("--trace", trace, "left out"),
    ):
        if found is not None:
            raise CstoolError(f"{flag}: must be {rule} with --executor fabric, got {found}")


def fabric_device(params: Params) -> Device:
    """Return the device of a run.

    Raises:
        CompileError: there is no CSL for the model, or not in its precision
    """
    if params.host_precision != "float32":
        rule = f"must be float32 with --executor fabric, got {params.host_precision}"
        raise CompileError(f"{params.path}: precision {rule}", "--precision float32")
    graph = trained_graph(params, declared_form(params))
    if not any(op.kind is OpKind.ATTENTION for op in graph.ops):
        return NetworkDevice(params)
    if params.num_csx != 1:
        raise CompileError(f"{graph.name}: must have one CSX to become CSL, got {params.num_csx}")
    return GptDevice()
