"""Data sets: their samples, the order of samples in batches, and the making of data sets from text."""

from cstool.training.data.batches import Sampler, batches_per_epoch
from cstool.training.data.bigram import bigram_loss
from cstool.training.data.changed_samples import ChosenTextsDataset, OneSequenceDataset, SinkTokensDataset
from cstool.training.data.check import DataCheck, check_data
from cstool.training.data.dataset import MASKS, Dataset, Field, allocate
from cstool.training.data.digits import DigitsSummary, prepare_digits
from cstool.training.data.encoder_text import EncoderText, EncoderTokenizer
from cstool.training.data.hdf5_text import Hdf5TextDataset, open_hdf5_text, write_hdf5_text
from cstool.training.data.info import DataInfo, PartInfo, data_info
from cstool.training.data.instruction_preparation import prepare_instructions
from cstool.training.data.instruction_request import InstructionPlan, InstructionSummary
from cstool.training.data.loaders import open_loader
from cstool.training.data.masked_preparation import MaskedTextPlan, prepare_masked_text
from cstool.training.data.mnist import open_mnist
from cstool.training.data.pair_text import PairTokenizer, pair_tokenizer
from cstool.training.data.parts import HDF5_TEXT_PROCESSORS, MNIST_PROCESSOR, open_dataset, open_part, vocab_size_of
from cstool.training.data.patches import PatchesDataset, has_images
from cstool.training.data.preference_preparation import PreferencePlan, PreferenceSummary, prepare_preferences
from cstool.training.data.preferences import PreferenceDataset
from cstool.training.data.preprocess_file import PreprocessPlan, read_preprocess_file
from cstool.training.data.preprocessing import PreprocessSummary, preprocess
from cstool.training.data.record import read_record
from cstool.training.data.shown_samples import ShownSample, shown_samples
from cstool.training.data.span_preparation import SpanTextPlan, prepare_span_text
from cstool.training.data.text import prepare_text
from cstool.training.data.text_request import Continued, TextPart, TextRequest, TextSummary
from cstool.training.data.token_classes import TokenClassesDataset, label_names
from cstool.training.data.tokenizer import (
    ByteTokenizer,
    FileTokenizer,
    Tokenizer,
    begun,
    load_tokenizer,
    tokenizer_beside,
    tokenizer_of,
)
