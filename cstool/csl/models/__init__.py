"""Models on the fabric: a training step as a program in CSL, weights streamed in by the host, gradients streamed out.

The layout is the compiler's for weight streaming (`cstool compile --execution_mode weight_streaming`): activations
stay on a rectangle of PEs. Column x has features [x * i, (x + 1) * i) of every activation, i = ceil(features /
columns); row y has tokens [y * t, (y + 1) * t). An activation of a PE is [i, t] float32, feature after feature, in its
`arena`.

- `network.py`: a network as plain data: the rectangle, tokens of a PE, layers. It knows of no other product.
- `memory.py`: the arena of a PE: places of activations, sums and deltas, and the rows of a matrix that pass at once;
  refuses a network that does not fit, by the op and the bytes.
- `pieces/*.csl`: code that all programs share, copied as it is:
    - `row.csl`: transfers along a row: `sum`, `gather`; both leave the result on every PE of the row.
    - `column.csl`: weights down a column (`send`, `receive`), sums of gradients down it (`sum`).
    - `products.csl`: y += W x, dx += W' dy, dW += dy x', for weights that arrive from the north, dense or sparse.
    - `vectors.csl`: bias, ReLU and its delta.
    - `functions.csl`: exponentials, reciprocals, logarithms, GELU of whole vectors; a GPT has them, too.
    - `loss.csl`: softmax cross entropy and its delta.
- `emit.py`: writes a folder: `layout.csl`, `pe.csl`, the pieces, `host.py`, `network.json`, `run.py`,
  `commands_wse3.sh`.
- `host.py`: the host's side, MemoryX: `Fabric` copies and launches, `NetworkOnFabric` walks over the ops. It is copied
  into the folder, and needs NumPy and an `SdkRuntime` alone.
- `simulated.py`: the same copies and launches inside this process, with the cycles of each, for `cstool run --executor
  fabric` and the tests.

How an op becomes CSL and calls. `emit.py` writes an exported function for each op and phase into `pe.csl`; its body
calls a piece with places in the arena and sizes, all known when it is compiled. Weights and gradients are cut where
they pass the edge: a function of them takes (first, rows), the rows of the matrix that pass in this call; with sparse
weights it takes nothing, as they come with their places, `places`, and an end. The host puts the weights of all columns
into `stream` of row 0, calls the function, and takes gradients from `gradient` of the last row:

    op          calls of the host, in order                                      result on the PEs
    linear      zero_sums(); N_forward(first, rows) ...; N_activation()          own features of the activation
    loss        zero_sums(); N_forward(first, rows) ...; loss()                  delta of the logits, own classes
    backward    N_gather(); N_gradient(first, rows) ...; N_bias_gradient()       sums of gradients in the last row
                zero_deltas(); N_delta(first, rows) ...; N_relu_delta()          own features of the delta

N is the number of the layer. Every call ends on all PEs before the next begins, so `sim.log` has the cycles of each.
A new kind of op brings a piece in CSL, a function of `emit.py` that calls it, and a method of the walk in `host.py`.

A GPT lies otherwise, tokens dealt in turn, and its ops are launched whole: `gpt_program.py` says how.
"""
