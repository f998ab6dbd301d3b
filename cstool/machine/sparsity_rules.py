"""What a params file asks for in sparsity, as the appliance takes it."""

from __future__ import annotations

from cstool.ir import Graph
from cstool.machine.kernel_choice import KernelChooser
from cstool.machine.memoryx.sparse_weights import SparsityRules
from cstool.params import Params
from cstool.sparsity import assign_groups
from cstool.store import read_mask, read_weight


def sparsity_rules(params: Params, graph: Graph, chooser: KernelChooser) -> SparsityRules:
    """Return which weights of a model are sparse, and by what rules.

    Args:
        params: with the groups
        graph: the model
        chooser: says which kernels compute with them

    Raises:
        ParamsError: a group matches no weight, or one that cannot be sparse
    """
    numbers = assign_groups(params.sparsity, graph, params.sparsity_place)
    groups = {name: params.sparsity[number] for name, number in numbers.items()}
    last_step = params.loop.max_steps if params.loop.num_steps is None else None
    return SparsityRules(groups, params.seed, last_step, chooser, read_weight, read_mask)
