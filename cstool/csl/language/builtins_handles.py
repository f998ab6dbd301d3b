"""Builtins that give handles of the machine: colors, queues, task ids, registers; and their numbers."""

from cstool.csl.fabric.arch import COLORS, TASK_IDS
from cstool.csl.fabric.dsd import Dsr
from cstool.csl.language import syntax, types, values
from cstool.csl.language.builtins_table import COMPTIME, RUN, Called, builtin
from cstool.csl.language.builtins_values import ALSO_RUN, ANYWHERE, is_handle, number_of, type_argument
from cstool.csl.language.evaluate_core import Scope
from cstool.csl.language.source import CslError
from cstool.csl.language.types import EnumType, OpaqueType
from cstool.csl.language.values import Value, describe, integer


def _handle(called: Called, type_: OpaqueType, count: int, what: str) -> Value:
    source, number = called.arguments[0]
    if source == type_:
        return called.arguments[0]
    if not types.is_int(source):
        raise CslError(f"@{called.node.name} takes an integer, got {describe((source, number))}", called.at(0))
    if not 0 <= number < count:
        raise CslError(f"{what} is 0 to {count - 1}, got {number}", called.at(0))
    return type_, number


HANDLES = {
    "get_color": (types.COLOR, "the color with a number"),
    "get_input_queue": (types.INPUT_QUEUE, "the input queue with a number"),
    "get_output_queue": (types.OUTPUT_QUEUE, "the output queue with a number"),
    "get_control_task_id": (types.CONTROL_TASK, "the id of a control task with a number"),
    "get_ut_id": (types.UT_ID, "the microthread with a number"),
    "get_xdsr": (types.XDSR, "an extended DSR, for tensors and circular buffers"),
    "get_sr": (types.SR, "a register for a stride of a tensor"),
}
"""Builtins that make a handle of a number: its type, and its meaning."""


_EXTENDED = 64
"""XDSRs, and stride registers: more than any program names, as the documentation does not count them."""


def _get_handle(called: Called) -> Value:
    arch = called.instance.arch
    counts = {
        types.COLOR: (COLORS, "a color"),
        types.INPUT_QUEUE: (len(arch.input_queues), f"an input queue of {arch.name}"),
        types.OUTPUT_QUEUE: (len(arch.output_queues), f"an output queue of {arch.name}"),
        types.CONTROL_TASK: (TASK_IDS, "a control task id"),
        types.UT_ID: (arch.microthreads, f"a microthread of {arch.name}"),
        types.XDSR: (_EXTENDED, "an xdsr"),
        types.SR: (_EXTENDED, "an sr"),
    }
    type_ = HANDLES[called.node.name][0]
    return _handle(called, type_, *counts[type_])


for _name, (_type, _meaning) in HANDLES.items():
    builtin(_name, 1, 1, ALSO_RUN, _meaning, "wse3" if _type == types.UT_ID else None)(_get_handle)


@builtin("get_local_task_id", 1, 1, ALSO_RUN, "the id of a local task with a number")
def _get_local_task_id(called: Called) -> Value:
    local = called.instance.arch.local_tasks
    number = number_of(called, 0)
    if number not in local:
        raise CslError(
            f"a local task id of {called.instance.arch.name} is {local.start} to {local.stop - 1}, got {number}",
            called.at(0),
        )
    return types.LOCAL_TASK, number


@builtin("get_data_task_id", 1, 1, ALSO_RUN, "the id of the data task of a color (WSE-2) or an input queue (WSE-3)")
def _get_data_task_id(called: Called) -> Value:
    source, number = called.arguments[0]
    arch = called.instance.arch
    if types.is_int(source) or source == types.DATA_TASK:
        limit = len(arch.input_queues) if arch.data_tasks_by_queue else COLORS
        return _handle(called, types.DATA_TASK, limit, f"a data task id of {arch.name}")
    wanted = types.INPUT_QUEUE if arch.data_tasks_by_queue else types.COLOR
    if source != wanted:
        raise CslError(
            f"a data task id of {arch.name} is made of {'an' if arch.data_tasks_by_queue else 'a'} {wanted}",
            called.at(0),
            f'it differs by generation: if (@is_arch("wse3")) ... ; got {source}',
        )
    return types.DATA_TASK, number


@builtin("get_color_id", 1, 1, ALSO_RUN, "@get_int, as SDK 0.9 named it")
@builtin("get_int", 1, 1, ALSO_RUN, "the number of a color, task id, queue, register, or member of an enum")
def _get_int(called: Called) -> Value:
    type_, data = called.arguments[0]
    if isinstance(type_, EnumType):
        return type_.tag, data
    if isinstance(data, Dsr):
        return types.U16, data.number
    if not is_handle(type_):
        raise CslError(f"@get_int takes a color, task id or queue, got {describe((type_, data))}", called.at(0))
    return types.U16, data


@builtin("get_dsr", 2, 2, ANYWHERE, "a register for DSDs: @get_dsr(dsr_dest, 0)")
def _get_dsr(called: Called) -> Value:
    type_ = type_argument(called, 0)
    files = {
        types.DSR_DEST: "dest",
        types.DSR_SRC0: "src0",
        types.DSR_SRC1: "src1",
        types.DSR_FIFO_DEST: "dest",
        types.DSR_FIFO_SRC1: "src1",
    }
    file = files.get(type_) if isinstance(type_, OpaqueType) else None
    if file is None:
        raise CslError(f"@get_dsr takes dsr_dest, dsr_src0 or dsr_src1, got {type_}", called.at(0))
    arch = called.instance.arch
    count = arch.dsrs[("dest", "src0", "src1").index(file)]
    other = called.arguments[1][1]  # a FIFO's register may be named by the plain one
    number = other.number if isinstance(other, Dsr) and other.file == file else number_of(called, 1)
    if not 0 <= number < count:
        raise CslError(f"a {type_} of {arch.name} is 0 to {count - 1}, got {number}", called.at(1))
    return type_, Dsr(file, number)


@builtin("load_to_dsr_xdsr_sr", 4, 5, (COMPTIME, RUN), "puts a tensor into a register, an xdsr and several sr")
@builtin("load_to_dsr_xdsr", 3, 4, (COMPTIME, RUN), "puts a circular buffer into a register and an xdsr")
@builtin("load_to_dsr", 2, 3, (COMPTIME, RUN), "puts a DSD into a register")
def _load_to_dsr(called: Called) -> Value:
    """At compile time: before the program runs. The code does it, first of all."""
    scope = Scope(called.scope.module)
    names = []
    for at, value in enumerate(called.arguments):
        scope.declare(f".{at}", value, None)  # a name that no program can have
        names.append(syntax.Name(called.at(at), f".{at}"))
    called.instance.loads.append((syntax.Builtin(called.place, called.node.name, tuple(names)), scope))
    return values.VOID


@builtin("get_filter_id", 1, 1, ANYWHERE, "the filter of a color")
def _get_filter_id(called: Called) -> Value:
    type_, data = called.arguments[0]
    if type_ != types.COLOR:
        raise CslError(f"@get_filter_id takes a color, got {type_}", called.at(0))
    return integer(data)


@builtin("get_rectangle", 0, 0, ANYWHERE, "width and height of the program's rectangle", pure=False)
def _get_rectangle(called: Called) -> Value:
    width, height = called.instance.compilation.rectangle(called.place)
    return types.STRUCT, {"width": integer(width), "height": integer(height)}
