"""From the model section of the params to a graph of ops: one file per family."""

from cstool.ir import Graph, verify
from cstool.models.decoder import decoder_graph
from cstool.models.fc_mnist import fc_mnist_graph
from cstool.params import DecoderParams, FcMnistParams, Params

__all__ = ["build_graph", "declared_sequence_length"]


def build_graph(model: FcMnistParams | DecoderParams, sequence_length: int | None) -> Graph:
    """Build the graph of a model.

    Args:
        sequence_length: S, tokens per sample of the data set; None for models without a sequence

    Returns:
        a verified graph
    """
    if isinstance(model, FcMnistParams):
        graph = fc_mnist_graph(model)
    else:
        if sequence_length is None:
            raise ValueError(f"{model.name} needs a sequence length")
        graph = decoder_graph(model, sequence_length)
    verify(graph)
    return graph


def declared_sequence_length(params: Params) -> int | None:
    """Return S as a file says it: a max_sequence_length of its data, else as long as the model takes.

    None for models without a sequence.
    """
    if not isinstance(params.model, DecoderParams):
        return None
    train = () if params.train_dataloader is None else (params.train_dataloader,)
    loaders = (*train, *params.val_dataloaders, *params.eval_dataloaders, *params.eval_all_dataloaders)
    lengths = [loader.sample_length for loader in loaders]
    return next((length for length in lengths if length is not None), params.model.max_position_embeddings)
