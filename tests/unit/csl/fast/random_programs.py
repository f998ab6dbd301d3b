"""Random fabric programs: layouts, routes and the code of PEs, as text that the compiler of CSL could have written.

They end, or stand still. Their code makes no sense, and does all that code can do.
"""

import struct
from dataclasses import dataclass, field
from random import Random

from cstool.csl.fabric.arch import ARCHS, OWN_QUEUES
from cstool.csl.fabric.control import ADVANCE, NOP, RESET, TEARDOWN, encode
from cstool.csl.fabric.operations import FUSED
from cstool.csl.fabric.program import FabricProgram, FifoBuffer, Filter, Handler, PEProgram, Symbol, Task
from tests.unit.csl.fabric.waits import config, fabric

BYTES = 1024
"""bytes of variables of a PE: words of random bits up to `FLOATS`, then float32, then float16"""
FLOATS, HALVES = 400, 800
IDS = range(8, 14)
"""local tasks"""
DATA_SETTINGS = ("activate", "unblock")
HEAD = """'random'

from math import inf as INFINITY
from math import nan as NAN

from cstool.csl.fabric.dsd import Dsr, FabricIn, FabricOut, Fifo, Mem1d, Mem4d, OnControl, Pointer, Settings
from cstool.csl.fabric.interface import offset_dsd, placed_dsd
from cstool.csl.fabric.memory import HALVES
from cstool.csl.fabric.numbers import bf16, f16
from cstool.csl.fabric.prng import random16, set_active_prng
from cstool.csl.fabric.scalar import bits16, bits32, float16, float32, integer, modulo, quotient, ratio, remainder
from cstool.csl.fabric.scalar import load64, shift, shown, store64


def program(pe):
"""
VIEWS = "".join(f"    {name} = pe.{name.lower()}\n" for name in "U8 I8 U16 I16 U32 I32 F32 F16".split())


@dataclass
class Stream:
    """A color on its way: who sends, who receives, and by which queues."""

    color: int
    sender: int
    receivers: list[int]
    length: int
    queues: dict[int, int] = field(default_factory=dict)


class Writer:
    """Writes the code of one PE.

    Args:
        random: the source of all choices
        arch: name of the generation
    """

    def __init__(self, random: Random, arch: str) -> None:
        self.random = random
        self.arch = arch
        self.constants: list[str] = []
        self.lines: list[str] = []
        self.indent = 2
        self.names = 0
        self.sends: list[Stream] = []
        self.takes: list[Stream] = []
        self.fifos = 0
        self.tasks: list[int] = []
        self.turns = 0

    # --- parts ---

    def pick(self, *among: str) -> str:
        return self.random.choice(among)

    def name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def integer(self) -> str:
        r = self.random
        return self.pick(
            str(r.randrange(65536)), f"U16[{r.randrange(200)}]", f"I16[{r.randrange(200)}]", f"U8[{r.randrange(400)}]",
            f"I32[{r.randrange(100)}]", f"(U32[{r.randrange(100)}] >> {r.randrange(32)})",
        )  # fmt: skip

    def condition(self) -> str:
        sign = self.pick("<", "<=", "==", "!=", ">", ">=")
        one = f"{self.integer()} {sign} {self.integer()}"
        if self.random.random() < 0.3:
            return f"{one} {self.pick('and', 'or')} not {self.integer()} {sign} {self.integer()}"
        return self.pick(one, one, f"0 <= {self.integer()} < 9000", f"{self.integer()} in (1, 2, 40000)", self.floats())

    def floats(self) -> str:
        return f"{self.single()} {self.pick('<', '>=', '==')} {self.single()}"

    def single(self) -> str:
        r = self.random
        return self.pick(
            f"F32[{FLOATS // 4 + r.randrange(100)}]", "0.5", "-3.0", f"HALVES[U16[{400 + r.randrange(100)}]]"
        )

    def statement(self, depth: int = 0) -> None:
        r = self.random
        kinds = (
            [self.scalar] * 3 + [self.vector] * 3 + [self.send, self.take] * 4 + [self.tasks_, self.clock, self.more]
        )
        if depth < 2:
            kinds += [self.branch, self.loop]
        kinds += [self.fifo, self.registers] * 2
        r.choice(kinds)() if depth >= 2 else self._nested(r.choice(kinds), depth)
        if r.random() < 0.5:
            self.line(f"pe.cycles += {r.randrange(1, 30)}")

    def _nested(self, kind, depth: int) -> None:
        self.depth = depth
        kind()

    def branch(self) -> None:
        depth = self.depth
        self.line(f"if {self.condition()}:")
        self.indent += 1
        self.statement(depth + 1)
        self.line("pass")
        self.indent -= 1
        if self.random.random() < 0.5:
            self.line("else:")
            self.indent += 1
            self.statement(depth + 1)
            self.line("pass")
            self.indent -= 1

    def loop(self) -> None:
        depth = self.depth
        name = self.name()
        self.line(f"for {name} in range({self.random.randrange(1, 4)}):")
        self.indent += 1
        self.line(f"pe.cycles += {self.random.randrange(9)}")
        self.line(f"U16[{self.random.randrange(100)} + {name}] = {name} * 3 & 0xffff")
        self.statement(depth + 1)
        self.indent -= 1

    # --- code without the fabric ---

    def scalar(self) -> None:
        r = self.random
        one, other = self.integer(), self.integer()
        sign = self.pick("+", "-", "*", "&", "|", "^")
        kind = r.randrange(10)
        if kind < 3:
            self.line(f"U16[{r.randrange(200)}] = ({one} {sign} {other}) & 0xffff")
        elif kind < 4:
            self.line(f"I32[{r.randrange(100)}] = (({one} {sign} {other}) + 0x80000000 & 0xffffffff) - 0x80000000")
        elif kind < 6:
            self.line(f"F32[{100 + r.randrange(100)}] = {self.single()} {self.pick('+', '-', '*')} {self.single()}")
        elif kind < 7:
            value = self.pick(
                f"f16({self.single()} * {self.single()})", f"f16(ratio({self.single()}, {self.single()}))"
            )
            self.line(f"F16[{400 + r.randrange(100)}] = {value}")
        elif kind < 8:
            name = self.name()
            self.line(f"{name} = {one} if {self.condition()} else {other}")
            self.line(f"U32[{r.randrange(100)}] = {name} & 0xffffffff")
        elif kind < 9:
            self.line(f"I32[{r.randrange(100)}] = integer({self.single()}, -2147483648, 2147483647)")
            self.line(f"U32[{r.randrange(100)}] = bits32(modulo({self.single()}, 0.75))")
        else:
            self.line(f"store64(U32, {8 * r.randrange(40)}, load64(U32, {8 * r.randrange(40)}) + {one})")
            self.line(f"I16[{r.randrange(200)}] = (quotient(pe, 'p', {one}, 7) + 0x8000 & 0xffff) - 0x8000")

    def memory(self, letter: str, extent: int | None = None) -> str:
        """A vector in memory, or a tensor."""
        r = self.random
        size = {"e": 2, "h": 2, "H": 2}.get(letter, 4)
        low, high = {"f": (FLOATS, HALVES), "e": (HALVES, BYTES)}.get(letter, (0, FLOATS))
        extent = extent or r.choice([1, 2, 3, 5, 8, 13, 26])
        stride = size * r.choice([1, 1, 1, 1, 0, 2, 3, -1])
        room = high - low - size - abs(stride) * (extent - 1)
        while room < 0:
            extent, stride = max(1, extent // 2), size
            room = high - low - size - stride * (extent - 1)
        address = low + r.randrange(room // size + 1) * size + (abs(stride) * (extent - 1) if stride < 0 else 0)
        if r.random() < 0.1 and extent >= 4:
            columns = 2
            return (
                f"Mem4d(address={low}, extents=({extent // 2}, {columns}), strides=({size * 3}, {size}), width={size})"
            )
        if size == 4 and r.random() < 0.1 and address + 2 + size <= high and stride >= 0:
            address = max(low, address - 2)
        if r.random() < 0.05:
            wrap = min(extent, 5)
            more = f"wrap={wrap}, first={r.randrange(wrap)}"
            return f"Mem4d(address={low}, extents=({extent},), strides=({size},), width={size}, {more})"
        indexed = ", indexed=True" if r.random() < 0.03 else ""
        return f"Mem1d(address={address}, extent={extent}, stride={stride}, width={size}{indexed})"

    def constant(self, text: str) -> str:
        if self.random.random() < 0.4 and text.startswith("Mem1d"):
            inner = (
                text[6:-1].replace("address=", "").replace("extent=", "").replace("stride=", "").replace("width=", "")
            )
            parts = inner.split(", ")
            return f"offset_dsd({self.constant_of(text)}, 0 * {self.integer()}, {parts[3]})"
        return self.constant_of(text)

    def constant_of(self, text: str) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(f"    {name} = {text}")
        return name

    def number(self, letter: str) -> str:
        if letter in "fe":
            return self.pick("0.5", "-2.0", "NAN", "INFINITY", "1.5")
        return str(self.random.randrange(9))

    def operands(self, name: str, dest: str | None, first: str | None = None) -> list[str]:
        """Operands of an operation; `dest` is the destination, None: a vector in memory; `first`: a source."""
        operation = FUSED[name]
        found = [dest or self.constant(self.memory(operation.dest))]
        if dest is None and operation.reduces and first is None and self.random.random() < 0.2:
            low = {"f": FLOATS, "e": HALVES}.get(operation.dest, 0)
            found = [f"Pointer({low + 4 * self.random.randrange(20)})"]
            return [*found, self.number(operation.sources[0]), self.constant(self.memory(operation.sources[1]))]
        for at, letter in enumerate(operation.sources):
            if at == 0 and first is not None:
                found.append(first)
            elif at and self.random.random() < 0.3:
                found.append(self.number(letter))
            else:
                found.append(self.constant(self.memory(letter)))
        return found

    def operation(self, letter: str | None = None) -> str:
        names = [name for name, each in FUSED.items() if name != "dfilt" and (letter is None or each.dest in letter)]
        return self.random.choice(names)

    def tuple(self, operands: list[str]) -> str:
        return f"({', '.join(operands)})"

    def vector(self) -> None:
        name = self.operation()
        operands = self.tuple(self.operands(name, None))
        kind = self.random.randrange(4)
        if kind < 3:
            self.line(f"pe.run({name!r}, {operands})")
        else:
            self.start(name, operands, [])

    def settings(self, more: list[str]) -> str:
        r = self.random
        parts = list(more)
        if r.random() < 0.6 and self.tasks:
            parts.append(f"activate={r.choice(self.tasks)}")
        if r.random() < 0.1 and self.tasks:
            parts.append(f"unblock={r.choice(self.tasks)}")
        if r.random() < 0.1:
            parts.append(f"priority={self.pick('high', 'low')!r}")
        if r.random() < 0.1:
            parts.append(f"microthread={r.randrange(8)}")
        return f"Settings({', '.join(parts)})"

    def start(self, name: str, operands: str, more: list[str]) -> None:
        self.line(f"if pe.start({name!r}, {operands}, {self.settings(more)}):")
        self.line("    yield from pe.pause()")

    def issue(self, name: str, operands: list[str], more: list[str]) -> None:
        text = self.tuple(operands)
        if self.random.random() < 0.85:
            self.start(name, text, more)
        else:
            result = self.name()
            self.line(f"{result} = yield from pe.wait({name!r}, {text}, {self.settings(more)})")
            self.line(f"U8[{self.random.randrange(300)}] = int({result})")

    # --- the fabric ---

    def send(self, which: Stream | None = None) -> None:
        if not self.sends:
            self.vector()
            return
        r = self.random
        stream = which or r.choice(self.sends)
        extent = max(1, stream.length + r.choice([0, 0, 0, 0, -1, 1]))
        queue = stream.queues[stream.sender]
        parts = f"queue={queue}, color={stream.color}, extent={extent}"
        kind = r.random()
        if kind < 0.12:
            payload = encode(
                ((r.choice([NOP, ADVANCE, ADVANCE, RESET, TEARDOWN]), r.random() < 0.3),), r.choice([31, 31, 20, 21])
            )
            self.issue(
                "mov32",
                [
                    self.constant_of(f"FabricOut(queue={queue}, color={stream.color}, extent=1, control=True)"),
                    str(payload),
                ],
                [],
            )
            return
        if kind < 0.2:
            parts += ", advance_switch=True"
        name = self.operation("fwi") if r.random() < 0.7 else self.operation("Hhe")
        if r.random() < 0.15:
            parts += ", indexed=True"
        operands = self.operands(name, self.constant_of(f"FabricOut({parts})"))
        operands = operands[:1] + [
            self.constant(self.memory(letter, extent)) if at == 0 else text
            for at, (text, letter) in enumerate(zip(operands[1:], FUSED[name].sources, strict=True))
        ]
        self.issue(name, operands, [f"first_index={r.randrange(40)}"] if r.random() < 0.1 else [])

    def take(self, which: Stream | None = None) -> None:
        if not self.takes:
            self.scalar()
            return
        r = self.random
        stream = which or r.choice(self.takes)
        me = stream.queues
        extent = max(1, stream.length + r.choice([0, 0, 0, 0, -1, 1]))
        parts = f"queue={me[-1 - self.index]}, extent={extent}"
        if r.random() < 0.15:
            task = f", activate={r.choice(self.tasks)}" if self.tasks and r.random() < 0.5 else ""
            parts += f", on_control=OnControl(terminate={r.random() < 0.7}{task})"
        source = self.constant_of(f"FabricIn({parts})")
        if r.random() < 0.05:
            self.issue("dfilt", [f"{source},"], [])
            return
        name = self.operation("fwi") if r.random() < 0.7 else self.operation("Hhe")
        dest = self.constant(self.memory(FUSED[name].dest, extent))
        if self.sends and r.random() < 0.2:
            onward = r.choice(self.sends)
            dest = self.constant_of(
                f"FabricOut(queue={onward.queues[onward.sender]}, color={onward.color}, extent={extent})"
            )
        self.issue(name, self.operands(name, dest, source), [])

    # --- tasks, clocks, FIFOs, registers ---

    def tasks_(self) -> None:
        r = self.random
        act = self.pick("activate", "activate", "block", "unblock")
        if act == "activate":
            self.turns += 1
            count = self.constant_count()
            self.line(f"if U16[{count}] < {r.randrange(2, 5)}:")
            self.line(f"    U16[{count}] = U16[{count}] + 1 & 0xffff")
            self.line(f"    pe.activate({r.choice(self.tasks)})")
        else:
            self.line(f"pe.{act}({r.choice(self.tasks)})")

    def constant_count(self) -> int:
        return BYTES // 2 + self.random.randrange(16)

    def clock(self) -> None:
        name = self.name()
        kind = self.random.randrange(5)
        if kind == 0:
            self.line(f"{name} = pe.time()")
            self.line(f"U32[{self.random.randrange(90)}] = {name} & 0xffffffff")
        elif kind == 1:
            self.line(f"pe.counter.set({self.random.randrange(3)})")
        elif kind == 2:
            self.line(f"{name} = pe.counter.shows()")
            self.line(f"U16[{self.random.randrange(90)}] = {name} & 0xffff")
        elif kind == 3:
            self.line(f"{name} = random16(pe)")
            self.line(f"U16[{self.random.randrange(90)}] = {name}")
        else:
            self.line("yield from pe.pause()")

    def more(self) -> None:
        r = self.random
        kind = r.randrange(9)
        streams = [*self.sends, *self.takes]
        if kind == 0:
            self.line(f"pe.config_write({256 + r.choice(self.tasks)}, {r.randrange(2)})")
        elif kind == 4 and streams:
            word = 0x200 + 8 * r.choice(streams).color + 4
            self.line(f"pe.config_write({word}, pe.config_read({word}) ^ {r.choice([0, 4, 8])})")
        elif kind == 5 and streams:
            word = 0x200 + 8 * r.choice(streams).color + r.randrange(8)
            self.line(f"U16[{r.randrange(90)}] = pe.config_read({word})")
        elif kind == 6 and self.flushed is not None:
            self.line(f"pe.queue_flush({self.flushed}, False)")
        elif kind == 7 and self.fifos:
            self.line(f"pe.fifos[0].lengths[{r.random() < 0.5}] = {r.randrange(1, 6)}")
        elif kind == 8 and self.takes:
            stream = r.choice(self.takes)
            source = self.constant_of(f"FabricIn(queue={stream.queues[-1 - self.index]}, extent={r.randrange(1, 4)})")
            dest = self.constant(self.memory("f", 3))
            self.line(f"yield from pe.map_wait(callback, ({source}, 0.5, {dest}), 'fff')")
        elif kind == 1:
            self.line(f"pe.config_write({0x160}, {r.randrange(6)})")
        elif kind == 2:
            self.line(f"pe.say('x ' + shown('', {self.integer()}) + shown('x', {self.integer()}) + ' y')")
        else:
            a, b = self.constant(self.memory("f", 3)), self.constant(self.memory("f", 3))
            self.line(f"pe.map(callback, ({a}, 0.5, {b}), 'fff')")

    def fifo(self) -> None:
        if not self.fifos:
            self.scalar()
            return
        r = self.random
        number = r.randrange(self.fifos)
        fifo = self.constant_of(f"Fifo(number={number})")
        name = self.pick("mov32", "fmovs", "fadds", "mov16", "add16")
        if r.random() < 0.5:
            self.issue(name, self.operands(name, fifo), [])
        else:
            self.issue(name, self.operands(name, None, fifo), [])

    def registers(self) -> None:
        r = self.random
        name = self.pick("fadds", "fmovs", "fmacs", "mov16")
        operation = FUSED[name]
        files = [("dest", operation.dest), ("src0", operation.sources[0]), ("src1", operation.sources[-1])]
        files = files[: 1 + len(operation.sources)][:3]
        found = []
        for file, letter in files:
            register = self.constant_of(f"Dsr(file={file!r}, number={r.randrange(3)})")
            operand = self.constant(self.memory(letter))
            self.line(f"pe.load_dsr({register}, {operand}, {self.settings([])}, {r.random() < 0.6})")
            found.append(register)
        if name == "fmacs":
            found.append("0.5")
        for _ in range(r.randrange(1, 3)):
            self.issue(name, found, [])

    index = 0
    depth = 0
    flushed: int | None = None

    # --- the whole ---

    def task(self, name: str, statements: int, argument: str = "", streams: bool = False) -> None:
        self.line(f"def {name}({argument}):")
        self.indent += 1
        if argument:
            self.line("F32[120] = f" if argument == "f" else f"U16[77] = {argument} & 0xffff")
        for stream in self.sends if streams else ():
            self.line("pe.cycles += 3")
            self.send(stream)
        for stream in self.takes if streams else ():
            self.take(stream)
        for _ in range(statements):
            self.statement()
        self.line("pe.cycles += 1")
        self.indent -= 1


def random_program(seed: int) -> FabricProgram:
    """The program of a seed."""
    random = Random(seed)
    arch = random.choice(["wse2", "wse3"])
    width, height = random.randrange(1, 5), random.randrange(1, 5)
    while width * height > 6:
        width, height = random.randrange(1, 5), random.randrange(1, 5)
    streams, routes = _routes(random, width, height, arch)
    programs = [_pe(random, arch, index, streams) for index in range(width * height)]
    tiles = [[y * width + x for x in range(width)] for y in range(height)]
    return fabric(width, height, routes, programs, tiles, arch=arch)


def memory_program(seed: int) -> FabricProgram:
    """One PE that does operations on memory alone: all of them, with all strides, on top of each other."""
    random = Random(seed)
    arch = random.choice(["wse2", "wse3"])
    writer = Writer(random, arch)
    writer.indent = 1
    writer.line("def go():")
    writer.indent = 2
    for _ in range(40):
        name = writer.operation()
        writer.line(f"pe.run({name!r}, {writer.tuple(writer.operands(name, None))})")
        writer.line(f"pe.cycles += {random.randrange(9)}")
    text = HEAD + VIEWS + "\n".join([*writer.constants, "", *writer.lines, "", "    return {'go': go}", ""])
    symbols = {"go": Symbol("function", function="go", place="pe.csl:1:1")}
    return fabric(1, 1, {}, [PEProgram("pe.csl", arch, text, _memory(random), symbols=symbols)], arch=arch)


def _memory(random: Random) -> bytes:
    """Bytes of any kind, then float32, then float16, then counts."""
    found = random.randbytes(FLOATS) + b"".join(_float(random) for _ in range((HALVES - FLOATS) // 4))
    return found + b"".join(_half(random) for _ in range((BYTES - HALVES) // 2)) + bytes(64)


def _routes(random: Random, width: int, height: int, arch: str):
    """Colors on chains of PEs: along a row or a column, some with switches or filters."""
    streams, routes = [], {}
    ins: dict[int, int] = {}
    outs: dict[int, int] = {}
    for color in range(random.randrange(1, 6)):
        x, y = random.randrange(width), random.randrange(height)
        ways = [way for way, room in (("E", width - 1 - x), ("W", x), ("S", height - 1 - y), ("N", y)) if room]
        sender = y * width + x
        path = [(x, y)]
        way = random.choice(ways) if ways else ""
        if way:
            dx, dy = {"E": (1, 0), "W": (-1, 0), "S": (0, 1), "N": (0, -1)}[way]
            most = {"E": width - 1 - x, "W": x, "S": height - 1 - y, "N": y}[way]
            path += [(x + dx * k, y + dy * k) for k in range(1, random.randrange(1, most + 1) + 1)]
        opposite = {"E": "W", "W": "E", "S": "N", "N": "S", "": ""}[way]
        table, receivers = {}, []
        for at, (px, py) in enumerate(path):
            last = at == len(path) - 1
            here = last or (at > 0 and random.random() < 0.4) or (at == 0 and random.random() < 0.2)
            rx = "R" if at == 0 else opposite
            tx = ("R" if here else "") + ("" if last else way)
            more = {}
            if here and random.random() < 0.12:
                kind = random.choice(["range", "counter"])
                limits = (2, 30) if kind == "range" else (0, 4, 1)
                more["filter"] = Filter(kind, limits, random.random() < 0.5)
            positions = [f"{rx}>{tx}"]
            if random.random() < 0.2 and not last:
                positions.append(random.choice([f"{rx}>{way}", f"{rx}>R", f"{rx}>{tx}"]))
                more["ring"] = random.random() < 0.5
                more["pop"] = random.choice(["no_pop", "always_pop", "pop_on_advance"])
                here = True
            table[px, py] = config(*positions, **more)
            if here:
                receivers.append(py * width + px)
        stream = Stream(color, sender, receivers, random.choice([1, 2, 4, 7, 12]))
        queues = ARCHS[arch]
        own = arch == "wse2" and random.random() < 0.25
        stream.queues[sender] = OWN_QUEUES + color if own else outs.setdefault(sender, 2 if arch == "wse2" else 0)
        outs[sender] = outs.get(sender, 2) + (not own)
        for receiver in receivers:
            stream.queues[-1 - receiver] = OWN_QUEUES + color if own else ins.setdefault(receiver, 0)
            ins[receiver] = ins.get(receiver, 0) + (not own)
        if not own and stream.queues[sender] >= len(queues.output_queues):
            continue
        streams.append(stream)
        routes[color] = table
    return streams, routes


def _pe(random: Random, arch: str, index: int, streams: list[Stream]) -> PEProgram:
    writer = Writer(random, arch)
    writer.index = index
    writer.tasks = list(IDS)
    writer.sends = [stream for stream in streams if stream.sender == index]
    mine = [stream for stream in streams if index in stream.receivers]
    tasks: dict[int, Task] = {}
    by_task = [stream for stream in mine if random.random() < 0.3]
    writer.takes = [stream for stream in mine if stream not in by_task]
    bound = [stream.queues[-1 - index] for stream in mine if stream.queues[-1 - index] < OWN_QUEUES]
    writer.flushed = bound[0] if bound and random.random() < 0.5 else None
    fifos = [_fifo(random) for _ in range(random.randrange(2))]
    writer.fifos = len(fifos)
    writer.indent = 1
    writer.line("def callback(a, b):")
    writer.line("    pe.cycles += 2")
    writer.line(f"    R[0] = a {random.choice('+-*')} b")
    writer.line("    return R[0]")
    for number in IDS:
        writer.task(f"local{number}", random.randrange(4), streams=random.random() < 0.35)
        tasks[number] = Task(f"local{number}", "local", place=f"pe.csl:{number}:1")
    writer.task("go", random.randrange(1, 4), streams=random.random() < 0.7)
    for stream in by_task:
        queue = stream.queues[-1 - index]
        number = queue if arch == "wse3" else stream.color
        letter = random.choice("fwH")
        writer.task(f"data{queue}", random.randrange(3), {"f": "f", "w": "w", "H": "H"}[letter])
        through = queue if queue < OWN_QUEUES else None
        tasks[number] = Task(f"data{queue}", "data", (letter,), through, stream.color, place="pe.csl:9:9")
    if random.random() < 0.4:
        writer.task("control", random.randrange(2), "H")
        tasks[20] = Task("control", "control", ("H",), place="pe.csl:5:5")
    handlers = []
    if random.random() < 0.4:
        tasks[29] = Task("teardown", "teardown", place="pe.csl:6:6")
        for stream in mine:
            writer.task(f"ended{stream.color}", random.randrange(2))
            writer.lines.insert(-1, f"        pe.config_write({0x200 + 8 * stream.color + 4}, 0)")
            handlers.append(Handler("color", stream.color, f"ended{stream.color}"))
        if writer.flushed is not None:
            writer.task("flushed", random.randrange(2))
            handlers.append(Handler("input", writer.flushed, "flushed"))
    functions = [line.split("(")[0].removeprefix("    def ") for line in writer.lines if line.startswith("    def ")]
    text = HEAD + VIEWS
    text += "    R = memoryview(bytearray(4)).cast('f')\n"
    text += "\n".join([*writer.constants, "", *writer.lines, ""])
    names = ", ".join(f"{name!r}: {name}" for name in functions if name != "callback")
    text += f"    return {{{names}}}\n"
    return PEProgram(
        "pe.csl",
        arch,
        text,
        _memory(random),
        tasks=tasks,
        blocked=frozenset(number for number in tasks if random.random() < 0.08),
        activated=(8,) if random.random() < 0.8 else (),
        handlers=tuple(handlers),
        input_queues={stream.queues[-1 - index]: stream.color for stream in mine if stream.queues[-1 - index] in bound},
        output_queues={s.queues[index]: s.color for s in writer.sends if s.queues[index] < OWN_QUEUES},
        fifos=tuple(fifos),
        symbols={"go": Symbol("function", function="go", place="pe.csl:1:1")},
        inputs=frozenset(stream.color for stream in mine),
        outputs=frozenset(stream.color for stream in writer.sends),
    )


def _fifo(random: Random) -> FifoBuffer:
    tasks = (random.choice([None, 9]) for _ in range(2))
    return FifoBuffer(4 * random.randrange(20), random.randrange(1, 6), random.choice([2, 4]), *tasks)


def _float(random: Random) -> bytes:
    value = random.choice([0.0, 1.0, -2.5, 3e38, 1e-40, float("inf"), random.gauss(0, 10), random.gauss(0, 1)])
    return struct.pack("<f", value)


def _half(random: Random) -> bytes:
    return struct.pack("<e", random.choice([0.0, 1.0, -2.5, 6e4, 1e-7, random.gauss(0, 10), random.gauss(0, 1)]))
