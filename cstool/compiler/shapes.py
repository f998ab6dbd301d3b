"""Pass: the shape of every op's output follows from its inputs and weights; what the model declared must agree."""

from __future__ import annotations

from dataclasses import dataclass

from cstool.compiler.program import Program, shapes_of
from cstool.ir import rules_of


@dataclass(frozen=True)
class InferShapes:
    """Infer shapes, segment by segment."""

    name: str = "infer_shapes"

    def __call__(self, program: Program) -> Program:
        """Return the program as it is.

        Raises:
            ValueError: an op's output is declared with another shape than its inputs and weights make, or an op's
                inputs do not go together
        """
        for segment in program.graph.segments:
            shapes = shapes_of(program.graph, segment)
            for op in segment.ops:
                for name, inferred in zip(op.outputs, rules_of(op).shapes(op, shapes), strict=True):
                    if shapes[name] != inferred:
                        raise ValueError(f"{op.name}: makes {inferred}, is declared to make {shapes[name]}")
        return program
