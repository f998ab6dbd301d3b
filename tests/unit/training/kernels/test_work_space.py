"""Work space that threads keep."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from cstool.training.kernels.work_space import WorkSpace


def test_a_name_has_the_same_memory_again_unless_it_must_grow():
    space = WorkSpace()
    first = space.lend("a", (3, 5))
    assert (first.shape, first.dtype) == ((3, 5), np.float32)
    assert np.shares_memory(space.lend("a", (2,)), first)
    assert not np.shares_memory(space.lend("b", (2,)), first)
    assert not np.shares_memory(space.lend("a", (16,)), first)


def test_memory_begins_at_a_cache_line():
    space = WorkSpace()
    assert {space.lend("a", (size,)).ctypes.data % 64 for size in range(1, 40)} == {0}


def test_threads_have_memory_of_their_own():
    space = WorkSpace()
    own = space.lend("a", (8,))
    with ThreadPoolExecutor(1) as thread:
        assert not np.shares_memory(thread.submit(space.lend, "a", (8,)).result(), own)
