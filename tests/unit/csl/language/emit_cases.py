"""Programs for tests of the emitter: CSL text -> Python -> functions over a small PE that notes what it is asked."""

from collections.abc import Callable
from typing import Any

from cstool.csl.fabric.arch import ARCHS
from cstool.csl.fabric.memory import Memory
from cstool.csl.language import evaluate, syntax
from cstool.csl.language.emit import emit_program
from cstool.csl.language.instance import EmittedCode, Instance, Root
from cstool.csl.language.module import Module
from cstool.csl.language.parse import parse
from cstool.csl.language.source import Source
from cstool.csl.language.values import FunctionValue


class Failed(Exception):
    """What the small PE raises for `pe.fail`."""


class SmallPE:
    """SRAM, a clock, and a list of what was asked for."""

    def __init__(self, memory: bytes) -> None:
        self.memory = memory_ = Memory(memory)
        self.x, self.y, self.cycles = 3, 5, 0
        self.u8, self.i8, self.u16, self.i16 = memory_.u8, memory_.i8, memory_.u16, memory_.i16
        self.u32, self.i32, self.f32, self.f16 = memory_.u32, memory_.i32, memory_.f32, memory_.f16
        self.load, self.store = memory_.load, memory_.store
        self.asked: list[Any] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in ("wait", "map_wait", "pause"):

            def generator(*arguments: Any) -> Any:
                self.asked.append((name, *arguments))
                yield name

            return generator
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments: self.asked.append((name, *arguments))

    def fail(self, message: str, place: str) -> None:
        raise Failed(f"{place}: {message}")

    def time(self) -> int:
        return 0x123456789ABC


class Program:
    """A program, compiled and started.

    Args:
        text: CSL
        arch: the generation
        params: values of its parameters, by name
    """

    def __init__(self, text: str, arch: str = "wse3", library: bool = False, **params: Any) -> None:
        self.instance = Instance(None, ARCHS[arch], "pe.csl", False)  # type: ignore[arg-type]
        file = parse(Source("pe.csl", text))
        self.module = Module(self.instance, file, "/pe.csl", library, params, None)
        self.instance.root = self.module
        with self.instance.during("comptime"):
            for declaration in file.declarations:
                if isinstance(declaration, syntax.ComptimeBlock):
                    evaluate.execute(declaration, evaluate.Scope(self.module))
        roots = [
            Root(each.name, FunctionValue(each, self.module), "function")
            for each in file.declarations
            if isinstance(each, syntax.Function) and (each.kind == "task" or each.linkage == "export")
        ]
        self.code: EmittedCode = emit_program(self.instance, roots)
        self.start()

    def start(self) -> None:
        """Begin anew, on a PE of its own."""
        self.pe = SmallPE(self.instance.memory)
        space: dict[str, Any] = {}
        exec(compile(self.code.text, "pe.py", "exec"), space)
        self.functions = space["program"](self.pe)

    def run(self, name: str, *arguments: Any) -> Any:
        """Call a function to its end, and return its result."""
        result = self.functions[name](*arguments)
        if hasattr(result, "send"):
            while True:
                try:
                    next(result)
                except StopIteration as stop:
                    return stop.value
        return result


def emitted(text: str, **more: Any) -> str:
    """The Python of a program, without what stands above its first function."""
    code = Program(text, **more).code.text
    return code[code.index("def program(pe):") :]
