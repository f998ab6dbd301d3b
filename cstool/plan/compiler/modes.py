"""Pass: the mode of execution, the fastest that fits, by whole steps of all systems; the reasons in words."""

from collections.abc import Iterator
from dataclasses import replace

from cstool.foundation.errors import CompileError
from cstool.foundation.words import micro_batches_text
from cstool.model.ir import Alternative, ExecutionMode
from cstool.plan.compiler.program import Program


class NothingFits(CompileError):
    """No mode that was asked for has room for the model; the program has a misfit for each of them."""

    def __init__(self, program: Program) -> None:
        modes = [ExecutionMode.WEIGHT_STREAMING, ExecutionMode.PIPELINED]
        # The last resort counts, if the system has it.
        if program.request.system.memoryx is None:
            modes.reverse()
        super().__init__(str(next(program.misfits[mode] for mode in modes if mode in program.misfits)))


def choose_mode(program: Program) -> Program:
    """Take the plan that is modelled to be faster.

    Raises:
        NothingFits: there is no plan
    """
    fitting = [a for a in alternatives(program) if a.step_cycles is not None and a not in program.others]
    if not fitting:
        raise NothingFits(program)
    chosen = min(fitting, key=lambda alternative: alternative.step_cycles or 0)
    return replace(program, mode=chosen.mode, reasons=tuple(_reasons(program, chosen)))


def alternatives(program: Program) -> tuple[Alternative, ...]:
    """Return the modes that were considered, with their modelled cycles or the misfit."""
    found = []
    for mode, cycles in program.step_cycles.items():
        if (plan := program.pipelined) is not None and mode is ExecutionMode.PIPELINED:
            count = plan.replicas[0] * plan.replicas[1]
            what = f"{len(plan.stages)} stages, {count} {'replica' if count == 1 else 'replicas'}"
        else:
            what = micro_batches_text(program.request.samples_per_csx, program.micro_batches[mode])
        found.append(Alternative(mode, cycles, what))
    found += [Alternative(mode, None, str(misfit)) for mode, misfit in program.misfits.items()]
    return (*sorted(found, key=lambda alternative: alternative.mode), *program.others)


def _reasons(program: Program, chosen: Alternative) -> Iterator[str]:
    request, clock_hz = program.request, program.request.system.clock_hz
    if request.execution_mode != "auto":
        yield f"{chosen.mode} was asked for"
    for other in alternatives(program):
        if other.mode is chosen.mode or chosen.step_cycles is None or other in program.others:
            continue
        if other.step_cycles is None:
            yield f"{other.mode} does not fit: {other.why}"
        else:
            ratio = other.step_cycles / chosen.step_cycles
            times = f"{chosen.step_cycles / clock_hz:.3g} s against {other.step_cycles / clock_hz:.3g} s"
            yield f"{chosen.mode} takes less time per step than {other.mode}, {ratio:.2f}x, modelled: {times}"
    yield from program.notes.get(chosen.mode, ())
    for other in program.others:
        if other.mode is chosen.mode and other.step_cycles and chosen.step_cycles:
            ratio = chosen.step_cycles / other.step_cycles
            yield f"--recompute fastest was not asked for: it would make a step {ratio:.2f}x as fast, modelled"
