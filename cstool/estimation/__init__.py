"""What a model would need on the modelled cluster: compiled, put on so many systems, set beside what is published."""

from cstool.estimation.point import Estimate, Estimator
from cstool.estimation.request import Request, make_request
from cstool.estimation.sweep import Row, first_of, scale, smallest_compute_bound, sweep_sparsity
