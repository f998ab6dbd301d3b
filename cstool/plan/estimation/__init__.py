"""Needs of a model on the modelled cluster: compiled, put on so many systems, compared with published results."""

from cstool.plan.estimation.point import Estimate, Estimator
from cstool.plan.estimation.request import EstimateOptions, Request, make_request
from cstool.plan.estimation.sweep import Row, Tried, estimates_in, scale, smallest_compute_bound, sweep_sparsity
