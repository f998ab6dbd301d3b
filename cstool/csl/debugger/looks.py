"""Commands that look at the fabric where the session stands."""

from cstool.csl.debugger import looking, memory, points
from cstool.csl.debugger.prompt import command, refuse_words
from cstool.csl.debugger.session import Session
from cstool.csl.debugger.sources import line_of
from cstool.csl.fabric.arch import SRAM_BYTES
from cstool.csl.fabric.pe import ProcessingElement
from cstool.csl.sdk.artifact import LETTERS
from cstool.foundation.errors import CstoolError


def _end(session: Session) -> ProcessingElement:
    return session.stop.replay.simulation.pes[session.chosen]


@command("")
def where(session: Session, rest: str) -> None:
    """Show this moment again, and the operations in progress on the chosen PE."""
    refuse_words("where", rest)
    session.present(*session.stop)
    session.show(f"{session.program.name(session.chosen)} ({_end(session).program.name})")
    session.show_all(looking.threads(_end(session)))


@command("X.Y")
def pe(session: Session, rest: str) -> None:
    """Choose the PE that other commands are about. A stop chooses the PE where it is."""
    if rest:
        found = points.pes_named(session.program, rest)
        if len(found) > 1:
            raise CstoolError(f"pe: must be one PE, got {rest}")
        session.chosen = found[0]
    session.show(f"{session.program.name(session.chosen)} ({_end(session).program.name})")


@command("VARIABLE [at PE]", "p")
def print_(session: Session, rest: str) -> None:
    """Show a variable, or a range of it: y, y[3], y[2:5], A[1, 0:4].

    At a statement, variables of its function, too, and DSDs. PE is X.Y, a rectangle X.Y:X.Y, or all.
    """
    what, at = points.split_at(rest)
    if not what:
        raise CstoolError("print: must be followed by a variable", "symbols lists them")
    pes = [session.chosen] if at is None else points.pes_named(session.program, at)
    simulation = session.stop.replay.simulation
    for index in pes:
        end = simulation.pes[index]
        head = f"{session.program.name(index)}: " if at is not None else ""
        session.show(f"{head}{what} = {_value(session, end, what)}")


def _value(session: Session, end: ProcessingElement, what: str) -> str:
    found = memory.dsds_of(end)
    if session.stop.moment.kind == "statement" and end.index == session.stop.moment.pe:
        found = found | memory.locals_of(session.stop.replay.frame)
    if what in found:
        return memory.operand_text(found[what], end.program)
    try:
        return memory.values_text(memory.find(end.program, what).value(end))
    except CstoolError as error:
        known = [*memory.variables(end.program), *found]
        if "[" not in what and what.isidentifier() and what not in known:
            raise memory.no_variable(end.program.name, what, known) from error
        raise


@command("")
def symbols(session: Session, rest: str) -> None:
    """List variables of the chosen PE, with type and address."""
    refuse_words("symbols", rest)
    end = _end(session)
    for name in memory.variables(end.program):
        found = memory.find(end.program, name)
        extents = f"[{', '.join(map(str, found.shape))}]" if found.shape else ""
        session.show(f"{name}: {extents}{found.kind}, byte {found.address}")
    for name, operand in memory.dsds_of(end).items():
        session.show(f"{name}: DSD, {memory.operand_text(operand, end.program)}")


@command("ADDRESS [N [TYPE]]")
def memory_(session: Session, rest: str) -> None:
    """Show N elements of the chosen PE's SRAM from a byte address on; TYPE is u16, f32 and so on."""
    words = rest.split()
    if not 1 <= len(words) <= 3:
        raise CstoolError(f"memory: must be followed by ADDRESS, N and TYPE, got {rest or 'nothing'}")
    address, count = points.whole("an address", words[0]), points.whole("N", words[1]) if len(words) > 1 else 8
    kind = words[2] if len(words) > 2 else "u32"
    letters = {name: letter for letter, name in LETTERS.items()}
    if kind not in letters:
        raise CstoolError(f"memory: TYPE must be {', '.join(letters)}, got {kind}")
    found = memory.Range(kind, address, letters[kind], (count,), ())
    if not count or address + count * found.width > SRAM_BYTES:
        raise CstoolError(f"memory: must be within {SRAM_BYTES:,} bytes, got {count} elements from {address} on")
    session.show(
        f"{memory.address_text(address, _end(session).program)}: {memory.values_text(found.value(_end(session)))}"
    )


@command("")
def tasks(session: Session, rest: str) -> None:
    """Show tasks of the chosen PE: activated, blocked, not run yet."""
    refuse_words("tasks", rest)
    session.show_all(looking.tasks(_end(session)))


@command("")
def threads(session: Session, rest: str) -> None:
    """Show operations in progress on the chosen PE, with their places and operands."""
    refuse_words("threads", rest)
    session.show_all(looking.threads(_end(session)))


@command("")
def queues(session: Session, rest: str) -> None:
    """Show queues and FIFOs of the chosen PE, with their wavelets."""
    refuse_words("queues", rest)
    session.show_all(looking.queues(_end(session)))


@command("[COLOR]")
def routes(session: Session, rest: str) -> None:
    """Show routes at the chosen PE, with switch positions, and wavelets that wait in its router."""
    color = points.whole("a color", rest) if rest else None
    session.show_all(looking.routes(session.stop.replay.simulation.network, session.chosen, color))


@command("")
def registers(session: Session, rest: str) -> None:
    """Show registers of operands (DSRs) of the chosen PE."""
    refuse_words("registers", rest)
    session.show_all(looking.registers(_end(session)))


@command("")
def waits(session: Session, rest: str) -> None:
    """Show the waits on the whole fabric, and the PEs and routers behind each."""
    refuse_words("waits", rest)
    replay = session.stop.replay
    session.show_all(looking.waits(replay.simulation, replay.host, replay.cycle))


@command("")
def host(session: Session, rest: str) -> None:
    """Show commands of the host that are under way."""
    refuse_words("host", rest)
    session.show_all(looking.host_lines(session.stop.replay.host, session.stop.replay.cycle))


@command("", "m")
def map_(session: Session, rest: str) -> None:
    """Draw a map of the PEs: which run, wait, or have nothing to do."""
    refuse_words("map", rest)
    session.show_all(looking.fabric_map(session.stop.replay.simulation, session.chosen))


@command("[LINE]")
def source(session: Session, rest: str) -> None:
    """Show the source around this place, or around LINE, which may be FILE:LINE."""
    moment = session.stop.moment
    here = line_of(moment.fields[0]) if moment.kind == "statement" else None
    if rest:
        name, _, line = rest.rpartition(":")
        file = session.sources.file_named(name) if name else session.file
        if file is None:
            raise CstoolError("source LINE: must be where a file is known, none is yet", "source FILE:LINE names it")
        number = points.whole("a line", line)
    elif here is not None:
        file, number = here
    else:
        raise CstoolError("source: must be at a statement, or followed by FILE:LINE", "step goes on to a statement")
    session.show_all(session.sources.around(file, number, here[1] if here and here[0] == file else None))
