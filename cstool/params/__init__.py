"""The vendor's YAML, trainer layout: checked, defaults filled in, errors with file and line.

`load_params` is the way in; `Params` is what everything else gets.
"""

from cstool.params.dataloader import DataloaderParams
from cstool.params.decoder import GATED_NONLINEARITIES, NONLINEARITIES, DecoderParams
from cstool.params.initializers import InitializerParams
from cstool.params.load import load_all_params, load_params
from cstool.params.model import FcMnistParams
from cstool.params.optimizers import SGD, Adam, AdamW
from cstool.params.parallel_decoder import ParallelDecoderParams
from cstool.params.params import Params
from cstool.params.paths import ResolvedPath, resolve_path
from cstool.params.schedules import Schedule
from cstool.params.sparsity import SparsityParams
from cstool.params.trainer import CheckpointParams, LoggingParams, LoopParams, PrecisionParams

__all__ = [
    "GATED_NONLINEARITIES",
    "NONLINEARITIES",
    "SGD",
    "Adam",
    "AdamW",
    "CheckpointParams",
    "DataloaderParams",
    "DecoderParams",
    "FcMnistParams",
    "InitializerParams",
    "LoggingParams",
    "LoopParams",
    "ParallelDecoderParams",
    "Params",
    "PrecisionParams",
    "ResolvedPath",
    "Schedule",
    "SparsityParams",
    "load_all_params",
    "load_params",
    "resolve_path",
]
