"""Moments in words."""

from cstool.csl.debugger.looking import wavelet_text
from cstool.csl.debugger.replay import Moment, Replay
from cstool.csl.debugger.sources import Sources
from cstool.csl.fabric.arch import PORTS, RAMP

_QUEUES = {
    "written": "a wavelet of color {color} goes into {queue}: {wavelet}",
    "full": "an operation waits for room in {queue}",
    "sent": "a wavelet of color {color} leaves {queue} for the router: {wavelet}",
    "refused": "the router has no room for a wavelet of color {color}: {wavelet}",
    "came": "a wavelet of color {color} comes into {queue}: {wavelet}",
    "taken": "a wavelet of color {color} is taken out of {queue}",
    "starved": "an operation waits for a wavelet in {queue}",
}
_OUTPUT = ("written", "full", "sent", "refused")


def moment_text(moment: Moment, replay: Replay) -> str:
    """A moment: its cycle, its PE, and the event that comes next.

    Code of a task runs at once in the cycle in which the task begins, or goes on. So its own cycle is ahead of the
    fabric's.
    """
    where = "" if moment.pe < 0 else f", {replay.simulation.program.name(moment.pe)}"
    if moment.pe >= 0 and moment.time != replay.cycle:
        where += f" (the fabric is at {replay.cycle:,})"
    return f"cycle {moment.time:,}{where}: {_event_text(moment, replay)}"


def _event_text(moment: Moment, replay: Replay) -> str:
    fields = moment.fields
    match moment.kind:
        case "task":
            return f"task {fields[0]} begins"
        case "task_end":
            return f"task {fields[0]} ends"
        case "op":
            return f"@{fields[1]} begins on {_thread(fields[0])}"
        case "op_end":
            return f"@{fields[1]} ends on {_thread(fields[0])}"
        case "hop":
            port, color, data, control = fields
            way = "down the ramp" if port == RAMP else f"to the {PORTS[port]}"
            return f"a wavelet of color {color} leaves the router {way}: {wavelet_text(data, control)}"
        case "queue":
            act, number, color, data, control = fields
            kind = "output queue" if act in _OUTPUT else "input queue"
            queue = f"{kind} {number}" if number is not None else f"the {kind} of the color"
            return _QUEUES[act].format(color=color, queue=queue, wavelet=wavelet_text(data, control))
        case "statement":
            running = replay.simulation.pes[moment.pe].main.running
            return f"{fields[0]}" + (f", in task {running.function}" if running else "")
        case "cycle":
            return "the cycle begins"
        case "host":
            return str(fields[0])
        case "begin":
            return "the program is loaded, and nothing has happened"
    return _ending_text(replay)


def _thread(label: str) -> str:
    return "the main thread" if label == "main" else label


def _ending_text(replay: Replay) -> str:
    ending = replay.ending
    assert ending is not None
    if ending.kind == "over":
        lines = ["the run has ended: the host has stopped it", *(f"warning: {line}" for line in ending.warnings)]
    elif ending.kind == "cut":
        lines = ["the recording ends here: the host script has asked for no more"]
    else:
        lines = [f"error: {ending.message}"]
        lines += [f"hint: {ending.hint}"] if ending.hint else []
        lines += ["", ending.report] if ending.report else []
    return "\n".join(lines)


def source_line(moment: Moment, sources: Sources) -> str:
    """The line of the source that a moment is at; "" where it is at none."""
    return sources.line(moment.fields[0]) if moment.kind == "statement" else ""
