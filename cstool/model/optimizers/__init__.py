"""Optimizers: a module for each with its properties, and how the module for a params file is found.

The module has the name of the section in the params, or of a section that this one extends, in lower case. It has a
class `Rule`, an `Optimizer` made from the section and the largest magnitude of a gradient's elements, and `FORMS`, a
section for each of its forms that costs differently.
"""

import functools
import importlib
import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from cstool.model.ir import Graph, Weight
from cstool.model.params.sections.optimizers import OPTIMIZERS, SGD
from cstool.model.params.sections.optimizers import Optimizer as Settings

if TYPE_CHECKING:
    # Costs are asked for by commands that answer before NumPy would be there.
    import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"
Shape = tuple[int, ...]


class Step(NamedTuple):
    """Facts about its step that an update needs."""

    number: int
    """from 1"""
    learning_rate: float
    gradient_scale: float
    """factor on the gradient before the update (clipping by norm, and division by the scale of the loss)"""
    skipped: int = 0
    """number of earlier steps that updated nothing"""

    @property
    def update(self) -> int:
        """Number of the update, from 1: equal to the step's, where none was skipped."""
        return self.number - self.skipped


class Optimizer(Protocol):
    """A rule of update with its state."""

    @property
    def name(self) -> str:
        """Its name; optimizers of different cost have different names."""

    @property
    def artifact_key(self) -> str:
        """Name of its state in the inputs of an artifact; optimizers with different artifacts have different names."""

    @property
    def update_ops(self) -> int:
        """Floating-point operations of an update per weight, its decay among them."""

    @property
    def is_one_loop(self) -> bool:
        """Whether an update is one call of one compiled loop, whose numbers depend on step and decay alone."""

    def states(self, shape: Shape) -> Mapping[str, Shape]:
        """Names and shapes of the arrays kept beside a weight of a shape, all float32 and zero to begin with."""

    def update(self, weight: Array, gradient: Array, states: Sequence[Array], step: Step, decays: bool) -> None:
        """Update (n,) float32 in place; the result does not depend on how a weight is cut.

        Args:
            weight, states: (n,) float32, updated
            gradient: (n,) float32
            step: the learning rate in it is the weight's
            decays: whether the weight is none of a norm and no bias
        """


class Go(Protocol):
    """Goes over a weight whose gradient is complete."""

    def __call__(self, visit: Callable[[Array, Array, int], None], *, changes: bool = False) -> None:
        """Call visit(weight, gradient, first) for tiles of rows, in order; the visit changes the weight or reads it."""


@runtime_checkable
class WholeOptimizer(Optimizer, Protocol):
    """A rule whose update of any number depends on all of the weight; `update` gets all of one, of any shape."""

    def update_whole(self, shape: Shape, states: Sequence[Array], go: Go, step: Step, decays: bool) -> None:
        """Update a weight in several passes; the result does not depend on how the weight is cut.

        Args:
            states: float32, each as a whole, updated
            go: passes over the weight, float32, called once for each pass
            step, decays: see `Optimizer.update`
        """


def make_optimizer(params: Settings, max_gradient_value: float | None) -> Optimizer:
    """Make the optimizer that the params ask for.

    Args:
        max_gradient_value: largest magnitude of an element of a gradient; None for any
    """
    made: Optimizer = _module(type(params)).Rule(params, math.inf if max_gradient_value is None else max_gradient_value)
    return made


def costed_optimizer(params: Settings | None) -> Optimizer:
    """Make the optimizer whose costs count: the one of the params, plain gradient descent where they have none."""
    return make_optimizer(params or SGD.model_validate({}), None)


def forms() -> Iterator[Optimizer]:
    """Yield an optimizer of every form that costs differently."""
    for module in dict.fromkeys(_module(section) for section in OPTIMIZERS.values()):
        for params in module.FORMS:
            yield make_optimizer(params, None)


def rule_name(optimizer: Optimizer) -> str:
    """Return the name of the module of an optimizer, as in "adam"."""
    return type(optimizer).__module__.rpartition(".")[2]


def compile_updates(name: str) -> None:
    """Compile the updates of an optimizer, given by `rule_name`, or load them from the cache of kernels."""
    import numpy as np

    module = importlib.import_module(f"{__package__}.{name}")
    for optimizer in (make_optimizer(params, None) for params in module.FORMS):
        weight = np.ones(8, np.float32)
        states = [np.zeros(shape, np.float32) for shape in optimizer.states(weight.shape).values()]
        optimizer.update(weight, np.ones(8, np.float32), states, Step(1, 0.1, 1.0), True)


def whole_arrays(optimizer: Optimizer, shape: Shape = (2, 3)) -> int:
    """Count the arrays of state that are of the shape of the weight beside them."""
    return sum(found == shape for found in optimizer.states(shape).values())


def updates(optimizer: Optimizer | None, weight: Weight) -> Optimizer | None:
    """Return the optimizer of a weight; None for a frozen one."""
    return None if weight.frozen else optimizer


def state_numbers(optimizer: Optimizer | None, shape: Shape, kept: int | None = None) -> int:
    """Count the numbers of state beside a weight.

    Args:
        optimizer: arrays of its state with another shape than the weight's are dense; None for no state
        kept: number of elements of the weight that are kept; None for all
    """
    arrays = optimizer.states(shape).values() if optimizer else ()
    return sum(math.prod(found) if kept is None or found != shape else kept for found in arrays)


def state_share(optimizer: Optimizer, graph: Graph) -> float:
    """Numbers of state per number of the weights of a graph that are trained."""
    weights = graph.trained_weights.values()
    return sum(state_numbers(optimizer, weight.shape) for weight in weights) / sum(weight.size for weight in weights)


@functools.cache
def compiled(loop: Callable[..., None], *, sums: bool = False) -> Callable[..., None]:
    """Compile the loop of an update, with the same bits however its arrays are cut, or cut in rows if it sums these.

    Not before it is called: costs are asked for by commands that have no need of a compiler.
    """
    from cstool.training.kernels._jit import elementwise, reduction

    return reduction(loop) if sums else elementwise(loop)


def _module(section: type[Settings]) -> ModuleType:
    names = (f"{__package__}.{kind.__name__.lower()}" for kind in section.__mro__)
    return importlib.import_module(next(name for name in names if importlib.util.find_spec(name) is not None))
