"""What a run says of the traffic of its file: all that was read and written, and no wait left out."""

from cstool.run.report.file_traffic import FileTraffic, traffic_of
from cstool.store import FileStore
from tests.models import fc_mnist
from tests.unit.machine.machines import machine, random_batch


def test_in_memory_there_is_none():
    with machine(fc_mnist(), 8) as appliance:
        assert traffic_of(appliance.memoryx) is None


def test_every_byte_and_the_last_commit_are_in_it(tmp_path):
    in_file = {"store": FileStore(tmp_path / "m.h5", 2**20), "waiting_bytes": 2**20, "memory_bytes": 2**30}
    with machine(fc_mnist(), 8, **in_file) as appliance:
        parameter_bytes = 4 * appliance.graph.parameter_count
        before = traffic_of(appliance.memoryx)
        assert before == FileTraffic(
            str(tmp_path / "m.h5"), 0, parameter_bytes, before.busy_s, 0.0, before.ahead_bytes, None
        )
        appliance.train_step(random_batch(appliance.graph, 8), 1, 0.1)
        appliance.memoryx.commit(lambda: {"global_step": 1})
        appliance.memoryx.drain()
        after = traffic_of(appliance.memoryx)
    # The weights fit the memory. The state is read once, and with the weights written once.
    assert (after.read_bytes, after.written_bytes - before.written_bytes) == (parameter_bytes, 2 * parameter_bytes)
    assert after.committed_step == 1
