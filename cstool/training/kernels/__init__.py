"""Numerics: functions over arrays that know nothing of wafers, files or params.

Dimension letters, everywhere in this package: B batch (samples), S sequence, T tokens of a grain (T = B x S), H hidden,
A heads, D head width, F feed-forward, V vocabulary. Activations of a grain are (T, width); for a model without a
sequence, a sample is one token. Weights are (out, in).

Rules of the package, on which the "same bits" promise rests:

- every kernel runs on one thread and releases the interpreter lock;
- the order of its sums is a function of the shapes alone;
- outputs and scratch are passed in, nothing large is allocated;
- a NaN in an input comes out as NaN or infinity, it never vanishes.

"""

from cstool.training.kernels._cache import kernel_folder
