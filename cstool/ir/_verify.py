"""What makes a graph legal. Checked when it is built, and when it is read with its artifact."""

from collections import Counter

from cstool.ir._graph import Graph


def verify(graph: Graph) -> None:
    """Check that a graph is legal.

    Raises:
        ValueError: naming the op, when a tensor is used before it is produced, is produced twice or not
            declared, a weight is not declared or never used, an op name (the key of its random numbers)
            is used twice, or an alias is none.
    """
    names = Counter(op.name for op in graph.ops)
    if repeated := [name for name, count in names.items() if count > 1]:
        raise ValueError(f"op name {repeated[0]!r} is used {names[repeated[0]]} times")
    available = {tensor.name for tensor in graph.inputs}
    used_weights = set()
    for op in graph.ops:
        for name in op.inputs:
            if name not in available:
                raise ValueError(f"{op.name}: reads {name!r}, which no op before it produces")
        for name in op.outputs:
            if name in available:
                raise ValueError(f"{op.name}: produces {name!r} a second time")
            if name not in graph.tensors:
                raise ValueError(f"{op.name}: produces {name!r}, which is not declared")
            available.add(name)
        for name in op.weights:
            if name not in graph.weights:
                raise ValueError(f"{op.name}: uses weight {name!r}, which is not declared")
            used_weights.add(name)
    if idle := set(graph.weights) - used_weights:
        raise ValueError(f"weight {min(idle)!r} is declared but no op uses it")
    for alias, name in graph.aliases.items():
        if name not in graph.weights or alias in graph.weights:
            raise ValueError(f"{alias!r} must be another name of a weight, got {name!r}")
    if graph.loss not in available:
        raise ValueError(f"no op produces the loss {graph.loss!r}")
