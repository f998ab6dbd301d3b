"""A run with a MemoryX in a file holds after many steps what it held after a few.

`python -m tests.soak_memoryx` watches thousands of steps, and the resident memory, too.
"""

from cstool.params import load_params
from tests.end_to_end.memoryx_files import IN_FILE, small_params
from tests.end_to_end.runs import compiled
from tests.memoryx_works import Work
from tests.soak_memoryx import soak


def test_nothing_that_a_process_holds_grows_with_the_steps(tmp_path, data):
    changes = {"init__loop": {"max_steps": 31}, "init__checkpoint": {"steps": 4}, **IN_FILE}
    file = small_params(tmp_path, data, init__model__num_hidden_layers=1, **changes)
    work = Work("soak", file, compiled(load_params(file), "train", "weight_streaming"), 1)
    before, after = (one for one in soak(work, tmp_path, 10) if one.step in (10, 30))
    assert after.descriptors <= before.descriptors
    assert after.threads <= before.threads
    # A commit that stays is some two hundred objects.
    assert after.objects - before.objects < 20 * 20
