"""Data sets: what a sample is, which samples make a batch, and how text becomes a data set."""

from cstool.data.batches import Sampler, batches_per_epoch
from cstool.data.bigram import bigram_loss
from cstool.data.check import DataCheck, check_data
from cstool.data.dataset import MASKS, Dataset, Field, allocate
from cstool.data.digits import DigitsSummary, prepare_digits
from cstool.data.encoder_text import EncoderText, EncoderTokenizer
from cstool.data.hdf5_text import Hdf5TextDataset, open_hdf5_text, write_hdf5_text
from cstool.data.info import DataInfo, PartInfo, data_info
from cstool.data.loaders import open_loader
from cstool.data.masked_preparation import MaskedTextPlan, prepare_masked_text
from cstool.data.mnist import open_mnist
from cstool.data.one_sequence import OneSequenceDataset
from cstool.data.pair_text import PairTokenizer, pair_tokenizer
from cstool.data.parts import HDF5_TEXT_PROCESSORS, MNIST_PROCESSOR, open_dataset, open_part, vocab_size_of
from cstool.data.patches import PatchesDataset, has_images
from cstool.data.preference_preparation import PreferencePlan, PreferenceSummary, prepare_preferences
from cstool.data.preferences import PreferenceDataset
from cstool.data.record import read_record
from cstool.data.sink_tokens import SinkTokensDataset
from cstool.data.span_preparation import SpanTextPlan, prepare_span_text
from cstool.data.text import prepare_text
from cstool.data.text_request import Continued, TextPart, TextRequest, TextSummary
from cstool.data.token_classes import TokenClassesDataset, label_names
from cstool.data.tokenizer import (
    ByteTokenizer,
    FileTokenizer,
    Tokenizer,
    begun,
    load_tokenizer,
    tokenizer_beside,
    tokenizer_of,
)
