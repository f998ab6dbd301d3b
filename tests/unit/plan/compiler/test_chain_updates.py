"""The update of a pipelined model: sums over replicas come before it."""

from dataclasses import replace

import pytest

from cstool.model.system import load_system
from cstool.plan.compiler.chain import Chain
from cstool.plan.compiler.compile import KERNEL_PASSES
from tests.models import fc_mnist
from tests.unit.plan.compiler.programs import a_request, compiled


@pytest.mark.parametrize("replicas", [(2, 1), (1, 3), (4, 2)])
def test_each_replica_that_sums_pass_takes_two_ramps(replicas):
    usual = load_system("cs2")
    slower = replace(usual, links=replace(usual.links, ramp_cycles=usual.links.ramp_cycles + 1))
    fast, slow = (Chain(compiled(fc_mnist(), KERNEL_PASSES, a_request(system))) for system in (usual, slower))
    # Of each replica behind the first one, and of the sums on their way back.
    ramps = 2 * (replicas[0] - 1 + replicas[1] - 1 + 1)
    assert slow.update_cycles(replicas) - fast.update_cycles(replicas) == ramps
