"""The vendor's YAML, trainer layout: checked, defaults filled in, errors with file and line.

`load_params` reads a file; the rest of the program gets `Params`.
"""

from cstool.model.params.load import (
    is_params_file,
    load_all_params,
    load_params,
    parse_params,
    stock_description,
    stock_file,
    stock_names,
    stock_text,
)
from cstool.model.params.params import Params
from cstool.model.params.paths import resolve_path
from cstool.model.params.rewrite import with_paths_from, with_values
from cstool.model.params.sections.attention_rules import AttentionRules
from cstool.model.params.sections.classifier import DecoderClassifierParams
from cstool.model.params.sections.dataloader import (
    DataloaderParams,
    LabelledParams,
    PreferencesParams,
    StockLoaderParams,
    data_set_names,
)
from cstool.model.params.sections.decoder import DecoderParams
from cstool.model.params.sections.encoder import (
    BertClassifierParams,
    BertParams,
    BertSummarizationParams,
    BertTokenClassifierParams,
    DprEncoderParams,
    DprParams,
    EncoderParams,
    Esm2Params,
)
from cstool.model.params.sections.encoder_decoder import EncoderDecoderParams
from cstool.model.params.sections.encoder_decoder_loaders import (
    Hdf5PairsParams,
    TextSpansParams,
    TokenLinesParams,
    TranslationsParams,
)
from cstool.model.params.sections.encoder_loaders import (
    DprLoaderParams,
    DrawnMasksParams,
    Hdf5MasksParams,
    MaskedTextParams,
    SentencesParams,
    SummariesParams,
    TokenClassesParams,
    usual_predictions,
)
from cstool.model.params.sections.fields import GATED_NONLINEARITIES, NONLINEARITIES
from cstool.model.params.sections.hooks import ALL_STATES, EarlyStopping, parse_states, written_states
from cstool.model.params.sections.initializers import InitializerParams
from cstool.model.params.sections.model import FcMnistParams, ImageModelParams, ModelParams, ParallelDecoderParams
from cstool.model.params.sections.optimizers import SGD, Adam, AdamW
from cstool.model.params.sections.preference import DpoParams
from cstool.model.params.sections.sparsity import SparsityParams
from cstool.model.params.sections.trainer import UNSCALED, LoopParams, LossScaling
from cstool.model.params.sections.vision import VisionTransformerParams
from cstool.model.params.sections.vision_loaders import (
    CenterCropParams,
    DigitsParams,
    NormalizeParams,
    PhotosParams,
    RandomCropParams,
    RandomFlipParams,
    RandomResizedCropParams,
    ResizeParams,
    ToTensorParams,
    TransformParams,
)
