"""Compile and estimate, from a params file: what the modelled wafer and its cluster make of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cstool.verbs.asked import asked_params, check_choice
from cstool.verbs.run import EXECUTION_MODES, RECOMPUTE

if TYPE_CHECKING:
    from cstool.estimation import Estimate, Estimator, Row
    from cstool.ir import Artifact
    from cstool.params import Params
    from cstool.system import System


def compile_model(
    params: str | Path | Params,
    system: str | Path | System = "cs2",
    *,
    overrides: Mapping[str, Any] | Sequence[str] | None = None,
    num_csx: int | None = None,
    execution_mode: Literal["auto", "pipelined", "weight_streaming"] = "auto",
    recompute: Literal["needed", "fastest"] = "fastest",
    micro_batch_size: int | None = None,
) -> Artifact:
    """Compile the model of a params file for a system; nothing runs, and no data is needed.

    Args:
        params: a params file of one trainer, or params that are loaded
        system: what each CSX is: cs1, cs2, cs3, a system file, or a system
        overrides: values by dotted key
        num_csx: number of CSX systems
        execution_mode: how the model uses the wafer; "auto" takes what is faster
        recompute: compute activations again where nothing fits otherwise ("needed"), or wherever that is faster
        micro_batch_size: so many samples must fit; None for as many as fit, at most those that the params ask for

    Returns:
        Everything that the compiler says of the model on the wafer

    Raises:
        CompileError: the model does not fit, with changes that would; or the systems do not divide the batch
        ParamsError: the file breaks rules, or there is no such system
    """
    check_choice("execution_mode", execution_mode, EXECUTION_MODES)
    check_choice("recompute", recompute, RECOMPUTE)
    from cstool import compiler
    from cstool.system import System, load_system

    asked = asked_params(params, overrides, num_csx=num_csx)
    return compiler.compile_model(
        asked,
        system if isinstance(system, System) else load_system(str(system)),
        execution_mode=execution_mode,
        recompute=recompute,
        micro_batch_size=micro_batch_size,
    )


def estimate(
    params: str | Path | Params,
    *,
    overrides: Mapping[str, Any] | Sequence[str] | None = None,
    num_csx: int | None = None,
    system: str | Path = "cs2",
    batch_per_csx: int | None = None,
    memoryx: str | None = None,
    tokens: str | int | None = None,
    execution_mode: Literal["auto", "pipelined", "weight_streaming"] = "auto",
    recompute: Literal["needed", "fastest"] = "fastest",
) -> Estimate:
    """Predict a training step on the modelled cluster; nothing runs, and no data is needed.

    Args:
        params: a params file of one trainer, or params that are loaded
        overrides: values by dotted key, for example `{"trainer.init.sparsity": 0.9}`
        num_csx: number of CSX systems; None for that of the params
        system: what each CSX is: cs1, cs2, cs3, or a system file
        batch_per_csx: samples of each system; None shares the batch of the file out
        memoryx: capacity of MemoryX, such as "12TB"; None for the largest there is
        tokens: to train with, such as "300B"; `days` of the result is how long that takes
        execution_mode: how the model uses the wafer; "auto" takes what is faster
        recompute: compute activations again where that is faster, or where it is needed

    Returns:
        Time of a step [s], what bounds it, tokens/s, power [W], the artifact; all of it modelled

    Raises:
        EstimateError: there is nothing to estimate, or not on so many systems
        CompileError: the model does not fit
        ParamsError: the file breaks rules, or there is no such system
    """
    found = _estimator(params, overrides, system, batch_per_csx, memoryx, tokens, execution_mode, recompute)
    return found.at(found.request.params.num_csx if num_csx is None else num_csx)


def estimate_scaling(
    params: str | Path | Params,
    num_csx: Sequence[int],
    *,
    overrides: Mapping[str, Any] | Sequence[str] | None = None,
    system: str | Path = "cs2",
    batch_per_csx: int | None = None,
    memoryx: str | None = None,
    tokens: str | int | None = None,
    execution_mode: Literal["auto", "pipelined", "weight_streaming"] = "auto",
    recompute: Literal["needed", "fastest"] = "fastest",
) -> list[Row]:
    """Predict a training step on several numbers of systems, side by side.

    Args:
        params: a params file of one trainer, or params that are loaded
        num_csx: numbers of systems
        overrides, system, batch_per_csx, memoryx, tokens, execution_mode, recompute: as for `estimate`

    Returns:
        For each number the estimate, or why there is none, with its speedup over the first

    Raises:
        EstimateError, CompileError: there is no estimate at all; the error is that of the first number
        ParamsError: the file breaks rules, or there is no such system
    """
    from cstool.estimation import scale

    found = _estimator(params, overrides, system, batch_per_csx, memoryx, tokens, execution_mode, recompute)
    return scale(found, num_csx)


def _estimator(
    params: str | Path | Params,
    overrides: Mapping[str, Any] | Sequence[str] | None,
    system: str | Path,
    batch_per_csx: int | None,
    memoryx: str | None,
    tokens: str | int | None,
    execution_mode: str,
    recompute: str,
) -> Estimator:
    check_choice("execution_mode", execution_mode, EXECUTION_MODES)
    check_choice("recompute", recompute, RECOMPUTE)
    from cstool.estimation import Estimator, make_request

    return Estimator(
        make_request(
            asked_params(params, overrides),
            str(system),
            batch_per_csx=batch_per_csx,
            execution_mode=execution_mode,
            recompute=recompute,
            memoryx=memoryx,
            tokens=None if tokens is None else str(tokens),
        )
    )
