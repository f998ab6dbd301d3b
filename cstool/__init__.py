"""A wafer-scale cluster in software: train models by weight streaming, from a YAML file.

Glossary, the field's words and only they:

- *fabric*: the two-dimensional mesh of a wafer; *PE*: one processing element of it, with its *router*;
  *wavelet*: one 32-bit message on the fabric; *color*: the virtual channel that a wavelet travels on;
  *tile*: the part of an array that one PE holds; *region*: a rectangle of PEs; *kernel*: the code of one op.
- *CSX*: one system, that is one wafer with what surrounds it. It holds activations, never weights.
- *MemoryX*: where weights, gradients and optimizer state live; it applies the optimizer.
- *SwarmX*: hands the weight stream to every CSX and sums the gradients on the way back.
- *input worker*: reads samples and hands each CSX its part of the batch.
- *appliance*: all of these together, run as one machine. *Weight streaming* is how it trains: weights pass
  through, op by op.
- *activation*: a tensor of the forward pass; *delta*: the derivative of the loss with respect to an
  activation; *gradient*: the derivative with respect to a weight.
- *global batch*: the samples of one step. *grain*: the samples that one kernel call of this host works on.
  *panel*: a range of rows of one weight, the unit in which weights and gradients travel.
  *lane*: a host thread that takes a fixed share of the grains through the stream. *slot*: the memory of one grain on
  a CSX; *wave*: the grains that have one at the same time. A layer is *recomputed* where its activations are not kept,
  but computed again just before its backward.
- *mask*: which weights of a matrix are not zero; *pattern*: the same in the order in which they stream; *density*:
  their share, *sparsity* that of the zeros.
- *window*: the last tokens that a token attends to; *sink*: a first token that all attend to, whatever the window.
"""

__version__ = "0.1.0"
