"""A GPT as a program in CSL: each op of its graph is a function forward and one backward, which the host launches.

Features lie over the columns of a rectangle of PEs, the tokens of one sample over its rows, dealt in turn: PE (x, y)
has the features x * w to x * w + w - 1 of the tokens y, y + rows, y + 2 rows ... Activations stay there, and what
backward needs of them. Weights pass through, op by op: the host hands them to the PEs of the north end, in `stream`,
and launches the op; its gradients are in the same array of the same PEs when its function backward is done. Lookups of
embeddings, and updates, are the host's.

`gpt/ops.csl` has the ops, `gpt/grid.csl` sums and broadcasts along rows and columns; here the memory of a PE is laid
out, and the ops are called with it. Ops are taken as they come, whatever their number: several blocks are several
times the ops of one.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from cstool.csl.fabric.arch import SRAM_BYTES
from cstool.csl.fabric.program import FabricProgram
from cstool.csl.language.compile import compile_csl
from cstool.csl.language.format import formatted
from cstool.csl.language.source import Source
from cstool.csl.models.emit import commands_text, write_files
from cstool.foundation.errors import CompileError

SOURCES = Path(__file__).parent
"""CSL and Python of all programs, and the texts that layout.csl and pe.csl are made of"""
HOST_KINDS = ("embedding", "position_embedding")
"""of ops that the host does, before the first that the fabric does"""
WORK_ARRAYS = ("work_0", "work_1", "work_2", "work_3")
"""arguments of functions of vectors"""
COPIED = (
    "gpt/grid.csl",
    "gpt/ops.csl",
    "pieces/functions.csl",
    "gpt/reference.py",
    "gpt/run.py",
    "gpt_host.py",
    "host.py",
)
"""files that a folder has as they are"""
MOST_ROWS = 127
"""tokens of a PE are so many tokens apart, and the stride of a `mem1d_dsd` is an i8"""
CODE_BYTES, STEP_BYTES = 8_192, 256
"""kept free for code, its variables and descriptors, and more for each op; a test compiles blocks and looks"""
_SHORTER = (
    ("transformer_decoder.", ""),
    ("_dense_layer", ""),
    (".linear_layer", ""),
    ("self_attn.proj", "attn"),
    ("self_attn", "attention"),
    ("ffn.ffn", "ffn"),
)


class GraphOp(Protocol):
    """An op of a graph, as `cstool.model.ir.Op` has it."""

    @property
    def kind(self) -> str:
        """Its kind of computation."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of tensors."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of tensors."""

    @property
    def weights(self) -> tuple[str, ...]:
        """Names of weights."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Of its kind, by name."""


@dataclass(frozen=True)
class Grid:
    """Where a sample lies.

    Args:
        columns: of PEs, which share the features
        rows: of PEs, which share the tokens
        tokens: of a sample
    """

    columns: int
    rows: int
    tokens: int

    @property
    def own_tokens(self) -> int:
        """Tokens of a PE."""
        return self.tokens // self.rows


@dataclass(frozen=True)
class Step:
    """An op on the fabric, as the host sees it.

    Args:
        op: its name in the graph
        kind: its kind
        name: of its functions, with `forward_` and `backward_` before it
        arrays: on a PE, its inputs
        output: likewise; a delta has `delta_` before the name
        weights: names, in the order of `stream`
        form: of the weights of a column in `stream`. "matrix": the rows of W^T of the column's inputs, then, if there
            are two names, the bias for column 0 and zeros for the others; "vectors": the column's features of each
        inputs: of a column
        outputs: of all columns; 0 of vectors
        attributes: of the op in the graph, as far as its arithmetic needs them
        sizes: arguments of its functions in CSL, beside arrays
    """

    op: str
    kind: str
    name: str
    arrays: tuple[str, ...]
    output: str
    weights: tuple[str, ...]
    form: str
    inputs: int
    outputs: int
    attributes: Mapping[str, Any]
    sizes: tuple[str, ...]

    @property
    def words(self) -> int:
        """Words of a column in `stream`."""
        if self.form == "matrix":
            return (self.inputs + len(self.weights) - 1) * self.outputs
        return self.inputs * len(self.weights)


@dataclass(frozen=True)
class GptProgram:
    """A program, and the host's side of it.

    Args:
        grid: where a sample lies
        hidden: features of the first op's input
        shapes: of the weights, by name
        steps: the ops in order
        layout, pe: texts of layout.csl and pe.csl
    """

    grid: Grid
    hidden: int
    shapes: Mapping[str, Sequence[int]]
    steps: Sequence[Step]
    layout: str
    pe: str

    @property
    def host(self) -> dict[str, Any]:
        """All that the host has to know, as program.json has it: see `gpt_host.py`."""
        steps = [{key: value for key, value in asdict(step).items() if key != "sizes"} for step in self.steps]
        shapes = {name: list(shape) for name, shape in self.shapes.items()}
        return {**asdict(self.grid), "hidden": self.hidden, "shapes": shapes, "steps": steps}

    @property
    def files(self) -> dict[str, str]:
        """Texts of a folder that runs by its commands_wse3.sh and checks itself, by file."""
        found = {"layout.csl": self.layout, "pe.csl": self.pe, "program.json": json.dumps(self.host, indent=1) + "\n"}
        found |= {Path(name).name: (SOURCES / name).read_text(encoding="utf-8") for name in COPIED}
        return found | {"commands_wse3.sh": commands_text(self.grid.columns, self.grid.rows)}

    def write(self, folder: Path) -> list[str]:
        """Write the folder, and return the names of the files.

        Raises:
            OSError: a file cannot be written
        """
        write_files(folder, self.files)
        return [*self.files]

    def compiled(self, arch: str = "wse3") -> FabricProgram:
        """Return it compiled for "wse2" or "wse3"."""
        with TemporaryDirectory(prefix="cstool_csl_") as folder:
            self.write(Path(folder))
            return compile_csl(Path(folder) / "layout.csl", arch)


def gpt_program(
    ops: Sequence[GraphOp], features: Mapping[str, int], shapes: Mapping[str, Sequence[int]], grid: Grid
) -> GptProgram:
    """Write the program of the ops of a GPT.

    Args:
        ops: of a graph, in order, without embeddings
        features: of the tensors that the host fills
        shapes: of the weights, by name
        grid: where a sample lies

    Raises:
        CompileError: an op, or its sizes, have no program, or it does not fit into a PE
    """
    return _Writer(shapes, grid).program(ops, features)


def array_name(name: str) -> str:
    """Return a name in CSL for a name of a graph.

    >>> array_name("transformer_decoder.layers.0.self_attn.proj_q_dense_layer.y")
    'layers_0_attn_q_y'
    """
    for long, short in _SHORTER:
        name = name.replace(long, short)
    return re.sub(r"\W+", "_", name)


@dataclass
class _Writer:
    shapes: Mapping[str, Sequence[int]]
    grid: Grid
    widths: dict[str, int] = field(default_factory=dict)
    """elements of a token that a PE has, by array"""
    more: dict[str, int] = field(default_factory=dict)
    """arrays beside activations and their deltas, and their words"""
    apart: set[str] = field(default_factory=lambda: {"stream", "work_1", "work_3", "delta_p"})
    """arrays that are read with others, and begin in other banks"""
    bodies: dict[str, str] = field(default_factory=dict)
    """calls in CSL, by function"""
    begun: set[str] = field(default_factory=set)
    """arrays whose delta the functions so far write"""
    head_columns: int = 0
    """columns of PEs that have features of the same head; 0 before the first attention"""

    def program(self, ops: Sequence[GraphOp], features: Mapping[str, int]) -> GptProgram:
        grid = self.grid
        if grid.tokens % grid.rows:
            raise CompileError(f"tokens: must be as many on each of {grid.rows} rows of PEs, got {grid.tokens}")
        if grid.rows > MOST_ROWS:
            raise CompileError(f"rows of PEs: must be at most {MOST_ROWS}, got {grid.rows}")
        for name, width in features.items():
            self.widths[array_name(name)] = self._share(name, width)
        steps = [self._forward(op) for op in ops]
        for step in reversed(steps):
            self._backward(step)
        arrays = self._arrays(steps)
        shapes = {name: self.shapes[name] for op in ops for name in op.weights}
        return GptProgram(grid, features[ops[0].inputs[0]], shapes, steps, self._layout(arrays), self._pe(arrays))

    def _share(self, name: str, width: int) -> int:
        if width % self.grid.columns:
            raise CompileError(
                f"{name}: features must be as many on each of {self.grid.columns} columns of PEs, got {width}"
            )
        return width // self.grid.columns

    # --- forward: an op's arrays, its weights, its call ---

    def _forward(self, op: GraphOp) -> Step:
        kinds = {
            "layer_norm": self._layer_norm,
            "linear": self._linear,
            "attention": self._attention,
            "activation": self._activation,
            "residual": self._residual,
            "softmax_loss": self._loss,
        }
        if op.kind not in kinds:
            raise CompileError(f"{op.name}: must be one of {', '.join(sorted(kinds))} to become CSL, got {op.kind}")
        if op.attributes.get("dropout"):
            raise CompileError(f"{op.name}: dropout must be 0.0 to become CSL, got {op.attributes['dropout']}")
        step = kinds[op.kind](op)
        epsilon = [repr(float(op.attributes["epsilon"]))] if op.kind == "layer_norm" else []
        self.bodies[f"forward_{step.name}"] = self._call("forward", step, [*step.arrays, step.output], *epsilon)
        return step

    def _step(self, op: GraphOp, outputs: int, *sizes: object, width: int | None = None) -> Step:
        """Return the step of an op.

        Args:
            outputs: of its matrix; 0 where its weights are vectors
            sizes: arguments of its functions, beside arrays
            width: features of its output on a PE; by default of its input
        """
        arrays = tuple(map(array_name, op.inputs[:1] if op.kind == "softmax_loss" else op.inputs))
        name, output, inputs = array_name(op.name), array_name(op.outputs[0]), self.widths[arrays[0]]
        self.widths[output] = inputs if width is None else width
        form = "matrix" if outputs else "vectors"
        written = tuple(str(each).lower() if isinstance(each, bool) else repr(each) for each in sizes)
        attributes = {key: op.attributes[key] for key in ("epsilon", "heads", "scale") if key in op.attributes}
        return Step(op.name, str(op.kind), name, arrays, output, op.weights, form, inputs, outputs, attributes, written)

    def _must(self, op: GraphOp, holds: bool, rule: str, hint: str | None = None) -> None:
        if not holds:
            raise CompileError(f"{op.name}: {rule}", hint)

    def _layer_norm(self, op: GraphOp) -> Step:
        self._must(op, len(op.weights) == 2, "must have a bias to become CSL, got none")
        name, width = array_name(op.name), self.widths[array_name(op.inputs[0])]
        self.more |= {f"{name}_normal": self.grid.own_tokens * width, f"{name}_inverse": self.grid.own_tokens}
        return self._step(op, 0, width, 1.0 / (width * self.grid.columns))

    def _linear(self, op: GraphOp) -> Step:
        outputs, inputs = self.shapes[op.weights[0]][0], self.widths[array_name(op.inputs[0])]
        width = self._share(op.name, outputs)
        return self._step(op, outputs, inputs, width, outputs, len(op.weights) > 1, width=width)

    def _attention(self, op: GraphOp) -> Step:
        inputs = len(op.inputs)
        self._must(op, inputs == 3, f"must have queries, keys and values alone to become CSL, got {inputs} inputs")
        of, grid, width = op.attributes, self.grid, self.widths[array_name(op.inputs[0])]
        plain = {"kv_heads": of["heads"], "causal": True, "softcap": None, "window": None, "slopes": (), "sinks": 0}
        for key, value in plain.items():
            self._must(op, of.get(key, value) == value, f"{key} must be {value} to become CSL, got {of.get(key)}")
        head = width * grid.columns // of["heads"]
        self._must(
            op,
            width % head == 0 or head % width == 0,
            f"a column of PEs must have whole heads, or a head whole columns, got {width} features of a column"
            f" and {head} of a head",
        )
        heads, head_columns = max(1, width // head), max(1, head // width)
        others = self.head_columns or head_columns
        self._must(op, head_columns == others, f"heads must be on {others} columns, got {head_columns}")
        self.head_columns = head_columns
        name, scores = array_name(op.name), heads * grid.own_tokens * grid.tokens
        sizes = {"keys": width * grid.tokens, "values": width * grid.tokens, "p": scores}
        self.more |= {f"{name}_{part}": words for part, words in sizes.items()}
        self.apart.add(f"{name}_p")
        self.more |= {f"delta_{part}": max(words, self.more.get(f"delta_{part}", 0)) for part, words in sizes.items()}
        return self._step(op, 0, width, heads, head, float(of["scale"]))

    def _activation(self, op: GraphOp) -> Step:
        function = op.attributes["function"]
        hint = "nonlinearity: gelu_new; <math> of CSL has tanh, but no error function"
        self._must(op, function == "gelu_new", f"function must be gelu_new to become CSL, got {function}", hint)
        self._must(op, len(op.weights) == 1, "must have a bias to become CSL, got none")
        width = self.widths[array_name(op.inputs[0])]
        self.more[f"{array_name(op.name)}_u"] = self.grid.own_tokens * width
        return self._step(op, 0, width)

    def _residual(self, op: GraphOp) -> Step:
        self._must(op, len(op.weights) == 1, "must have a bias to become CSL, got none")
        return self._step(op, 0, self.widths[array_name(op.inputs[0])])

    def _loss(self, op: GraphOp) -> Step:
        of, classes, tokens = op.attributes, self.shapes[op.weights[0]][0], self.grid.own_tokens
        plain = {"logits_scale": 1.0, "logits_softcap": None, "label_smoothing": 0.0}
        for key, value in plain.items():
            self._must(op, of.get(key, value) == value, f"{key} must be {value} to become CSL, got {of.get(key)}")
        self._must(op, len(op.weights) == 1, "must have no bias to become CSL, got one")
        own = self._share(op.name, classes)
        self.more |= {"token_weights": tokens, "correct": tokens, "delta_logits": tokens * own}
        inputs = self.widths[array_name(op.inputs[0])]
        return self._step(op, classes, inputs, own, classes, len(op.weights) > 1, width=1)

    # --- calls ---

    def _call(self, way: str, step: Step, arrays: Sequence[str], *flags: str) -> str:
        function = {"layer_norm": "norm", "activation": "gelu", "softmax_loss": "loss"}.get(step.kind, step.kind)
        kept = {
            "layer_norm": (f"{step.name}_normal", f"{step.name}_inverse"),
            "attention": (f"{step.name}_keys", f"{step.name}_values", f"{step.name}_p"),
            "activation": (f"{step.name}_u",),
            "softmax_loss": ("labels", "token_weights", "delta_logits", "correct")
            if way == "forward"
            else ("delta_logits",),
        }
        names = [f"at_{name}" for name in (*arrays, *kept.get(step.kind, ()))]
        return f"ops.{function}_{way}({', '.join([*names, *step.sizes, *flags])});"

    def _backward(self, step: Step) -> None:
        """The last op that reads a tensor runs backward first, and begins its delta; the others add to it."""
        x, *others = step.arrays
        adds = str(x in self.begun).lower()
        self.begun.update([x] if step.kind != "attention" else step.arrays)
        deltas = [f"delta_{name}" for name in step.arrays]
        match step.kind:
            case "linear":
                arrays, flags = [x, f"delta_{step.output}", *deltas], [adds]
            case "attention":
                arrays, flags = [x, f"delta_{step.output}", *deltas, "delta_keys", "delta_values", "delta_p"], []
            case "residual":
                arrays, flags = [f"delta_{step.output}", *deltas], [str(others[0] in self.begun).lower()]
                self.begun.add(others[0])
            case "softmax_loss":
                arrays, flags = [x, *deltas], [adds]
            case "activation":
                arrays, flags = [f"delta_{step.output}", *deltas], []
            case _:
                arrays, flags = [f"delta_{step.output}", *deltas], [adds]
        self.bodies[f"backward_{step.name}"] = self._call("backward", step, arrays, *flags)

    # --- texts ---

    def _arrays(self, steps: Sequence[Step]) -> dict[str, int]:
        """Arrays that the host may name, and their words.

        Raises:
            CompileError: all arrays together are too large for a PE
        """
        tokens = self.grid.own_tokens
        losses = {step.output for step in steps if step.kind == "softmax_loss"}
        found = {name: tokens * width for name, width in self.widths.items()}
        found |= {f"delta_{name}": words for name, words in found.items() if name not in losses}
        found |= self.more | self._scratch(steps)
        total, most = 4 * sum(found.values()), SRAM_BYTES - CODE_BYTES - STEP_BYTES * len(steps)
        if total > most:
            largest = sorted(found, key=lambda name: (-found[name], name))[:3]
            widest = max(steps, key=lambda step: step.words).op
            raise CompileError(
                f"arrays of a PE: must take at most {most:,} bytes, got {total:,}, {total - most:,} more, of which"
                f" {', '.join(f'{name} {4 * found[name]:,}' for name in largest)}; the widest weights are of {widest}",
                f"narrower layers, shorter samples, or more than {self.grid.columns} x {self.grid.rows} PEs",
            )
        return found

    def _scratch(self, steps: Sequence[Step]) -> dict[str, int]:
        """Arrays that hold nothing from op to op; the host names only `stream` of them."""
        outputs, tokens = max(step.outputs for step in steps), self.grid.own_tokens
        keys = [self.widths[step.output] * self.grid.tokens for step in steps if step.kind == "attention"]
        work = max([tokens * max(self.widths.values()), outputs // self.grid.columns, *keys])
        stream = max(1, *(step.words for step in steps))
        return {"stream": stream, "full": tokens * max(outputs, 2), **dict.fromkeys(WORK_ARRAYS, work)}

    def _layout(self, arrays: Mapping[str, int]) -> str:
        names = [f'  @export_name("{name}", [*]f32, true);' for name in arrays]
        names += ['  @export_name("labels", [*]u32, true);']
        names += [f'  @export_name("{name}", fn()void);' for name in self.bodies]
        return _text(
            "layout",
            columns=self.grid.columns,
            rows=self.grid.rows,
            head_columns=self.head_columns or 1,
            names="\n".join(names),
        )

    def _pe(self, arrays: Mapping[str, int]) -> str:
        lines = [line for name, words in arrays.items() for line in _array(name, words, name in self.apart)]
        functions = [
            f"fn {name}() void {{\n  {call}\n  memcpy.unblock_cmd_stream();\n}}\n" for name, call in self.bodies.items()
        ]
        exports = [f'  @export_symbol(at_{name}, "{name}");' for name in (*arrays, "labels")]
        exports += [f"  @export_symbol({name});" for name in self.bodies]
        return _text(
            "pe",
            rows=self.grid.rows,
            tokens=self.grid.own_tokens,
            arrays="\n".join(lines),
            functions="\n".join(functions),
            exports="\n".join(exports),
        )


def _array(name: str, words: int | str, is_apart: bool) -> list[str]:
    """An array, and where it begins: at a multiple of 8 bytes, or 4 behind one.

    Where an operation reads an array of each kind, its reads never meet in a bank.
    """
    if not is_apart:
        return [f"var {name} align(8) = @zeros([{words}]f32);", f"const at_{name}: [*]f32 = &{name};"]
    begin = f"const at_{name} = @ptrcast([*]f32, &{name}[1]);"
    return [f"var {name} align(8) = @zeros([{words} + 1]f32);", begin]


def _text(name: str, **parts: object) -> str:
    text = (SOURCES / f"gpt/{name}.txt").read_text(encoding="utf-8").format(**parts)
    return formatted(Source(f"{name}.csl", text))
