"""A part of the tests with the oldest dependencies that setup.cfg allows; all others run with the newest."""

import pytest

from tests import versions

FEW = (
    *("tests/unit/model/params/test_load.py", "tests/unit/training/store/test_file.py"),
    "tests/unit/training/store/test_checkpoint_reader.py",
    "tests/unit/training/machine/test_appliance.py::test_gradients_of_weights_in_several_panels_are_derivatives_too",
)


@pytest.mark.takes("makes an environment of its own, and compiles kernels with another Numba")
def test_a_part_of_the_tests_with_the_oldest_dependencies():
    assert versions.main(["--", *FEW, "-q", "-m", "not lab and not golden"]) == 0
