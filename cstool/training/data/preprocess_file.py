"""A file of the vendor's preprocessing: `setup`, `processing` and `dataset`, checked against sections.

Source: Cerebras Model Zoo 2.10.0, data_preparation/data_preprocessing: data_preprocessor.py, the token generators, and
configs/*.yaml.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from cstool.foundation.words import did_you_mean
from cstool.foundation.yaml_lines.document import read_document
from cstool.foundation.yaml_lines.problems import Problems
from cstool.foundation.yaml_lines.section import Count, Section, Whole, not_beside, rule_error
from cstool.model.params.overrides import apply_overrides
from cstool.model.params.paths import PathText
from cstool.training.data.preparation import digest_of
from cstool.training.data.tokenizer_files import TOKENIZER_FILE
from cstool.training.data.vendor_hooks import HOOKS, Hook, TokensHook

Mode = Literal["pretraining", "finetuning", "dpo", "nlg"]
_HOOKS = "cerebras.modelzoo.data_preparation.data_preprocessing.hooks:"
_LLAMA3 = (
    "cerebras.modelzoo.data_preparation.data_preprocessing.custom_tokenizer_example.CustomLlama3Tokenizer:"
    "CustomLlama3Tokenizer"
)
_TOKENIZERS = ("gpt2tokenizer", "neoxtokenizer", "...:CustomLlama3Tokenizer")
_MOST_LENGTH = 2**20
_TEXT_REGION = "text"
"""the region that all hooks here make"""


def _check_weights(weights: dict[str, Any]) -> dict[str, Any]:
    if weights.get(_TEXT_REGION, 1) not in (0, 1):
        raise rule_error(f"must be 0 or 1 for {_TEXT_REGION}: masks are whole numbers")
    return weights


def _check_drops(drops: dict[str, Any]) -> dict[str, Any]:
    if drops.get(_TEXT_REGION):
        raise rule_error(f"must not drop {_TEXT_REGION}: all that the hooks read is {_TEXT_REGION}")
    return drops


def _refused(hint: str) -> AfterValidator:
    """A key that is refused, with another way."""

    def refuse(_: Any) -> None:
        raise rule_error("is not supported", hint)

    return AfterValidator(refuse)


class SplitParams(Section):
    """A split of the data."""

    split_fraction: Annotated[float, Field(gt=0, le=1)]
    context_splits: Annotated[Any, _refused("one max_seq_length holds for all splits")] = None


def _check_splits(splits: dict[str, SplitParams]) -> dict[str, SplitParams]:
    if not math.isclose(sum(split.split_fraction for split in splits.values()), 1):
        raise rule_error("must have fractions that add up to 1")
    if not all(name and not {"/", "\0"} & {*name} and not name.startswith(".") for name in splits):
        raise rule_error("must have names of folders")
    return splits


class DataParams(Section):
    """The place of the records."""

    type: Literal["local", "huggingface"]
    source: PathText
    split: str | None = None

    without_effect = frozenset({"cache_dir", "num_proc", "trust_remote_code"})


class SetupParams(Section):
    """The section `setup`."""

    data: DataParams
    mode: Mode
    output_dir: PathText = "./output/"
    data_splits: Annotated[dict[str, SplitParams], AfterValidator(_check_splits)] | None = None

    without_effect = frozenset({"processes", "data_splits_dir", "num_nodes", "rank", "slurm"})
    supported = {"context_splits": (), "metadata_files": (), "image_dir": (), "token_generator": ()}


class TokenizerParams(Section):
    """The files of a tokenizer."""

    encoder_file: PathText | None = None
    vocab_file: PathText | None = None
    pretrained_model_name_or_path: PathText | None = None
    eos_token_id: Whole | None = None
    pad_token_id: Whole | None = None

    without_effect = frozenset({"use_fast", "token", "trust_remote_code", "cache_dir"})


class ProcessingParams(Section):
    """The section `processing`."""

    read_hook: str
    read_hook_kwargs: dict[str, Any]
    huggingface_tokenizer: PathText | None = None
    custom_tokenizer: Annotated[str | None, not_beside("huggingface_tokenizer")] = None
    tokenizer_params: TokenizerParams = TokenizerParams()
    eos_id: Whole | None = None
    pad_id: Whole | None = None
    max_seq_length: Annotated[int, Field(ge=2, le=_MOST_LENGTH)] = 2048
    min_sequence_len: Whole = 10
    use_ftfy: bool = True
    ftfy_normalizer: Literal["NFC", "NFD", "NFKC", "NFKD"] = "NFC"
    semantic_loss_weight: Annotated[dict[str, Any], AfterValidator(_check_weights)] = {}
    semantic_drop_mask: Annotated[dict[str, Any], AfterValidator(_check_drops)] = {}
    end_of_turn_token: str | None = None
    shuffle: bool = False
    shuffle_seed: Whole = 0
    split_seed: Whole = 0
    skip_broken: bool = Field(False, alias="UNSAFE_skip_jsonl_decoding_errors")

    without_effect = frozenset(
        {
            "fraction_of_RAM_alloted",
            "read_chunk_size",
            "resume_from_checkpoint",
            "seed",
            "semantic_attention_mask",
            "write_chunk_size",
            "write_in_batch",
        }
    )
    supported = {
        "input_ids_dtype": ("int32",),
        "input_mask_dtype": ("int32",),
        "inverted_mask": (False,),
        "short_seq_prob": (0,),
        "token_limit": (),
        "wikitext_detokenize": (),
    }


class TruncateParams(Section):
    """How texts are cut that are too long."""

    prompt_truncation_mode: Literal["keep_start", "keep_end"] | None = None
    max_turn_length: Count | None = None

    without_effect = frozenset({"truncation_mode"})


class DatasetParams(Section):
    """The section `dataset`."""

    sep_token: str | None = None
    chat_template: str | None = None
    truncate_to_msl: TruncateParams | None = None
    use_vsl: bool = False
    pack_sequences: bool = True
    max_prompt_length: Count = 512
    response_delimiter: str = "<response>"
    training_objective: Annotated[
        str | None, _refused("`cstool data prepare mlm` and `span` make data sets for encoders")
    ] = None

    null_counts = frozenset({"sep_token"})
    without_effect = frozenset({"user_role", "assistant_role", "position_ids_dtype"})
    supported = dict.fromkeys(
        (
            *("is_multimodal", "image_token", "max_num_img", "num_patches", "register_special_image_token"),
            *("use_single_image_token", "split_text_to_tokenize", "chunk_len_to_split", "remove_bos_in_chunks"),
            *("fim_rate", "spm_rate", "fim_prefix_tok", "fim_middle_tok", "fim_suffix_tok"),
            *("mlm_fraction", "mlm_with_gather", "ignore_index", "excluded_tokens"),
        ),
        (),
    )


@dataclass(frozen=True)
class PreprocessPlan:
    """All that a file of the vendor's preprocessing asks for.

    Args:
        setup, processing, dataset: its sections
        hook: that reads records, with its keys
        files: of the tokenizer: a tokenizers JSON file; or the vocabulary and the merges of GPT-2
        notes: accepted keys without effect, one line each
        warnings: things that are not as the file seems to say
    """

    setup: SetupParams
    processing: ProcessingParams
    dataset: DatasetParams
    hook: Hook | TokensHook
    files: Sequence[Path]
    notes: Sequence[str]
    warnings: Sequence[str]

    @property
    def joins(self) -> bool:
        """Whether the default separator stands between prompt and completion."""
        return "sep_token" not in self.dataset.model_fields_set

    def digested(self) -> list[Any]:
        """Return plain data that the data set depends on, the content of the tokenizer's files included."""
        sections: list[Section] = [self.processing, self.dataset, self.hook]
        setup = {"mode": self.setup.mode, "split": self.setup.data.split}
        splits = {name: split.dump() for name, split in (self.setup.data_splits or {}).items()}
        return [setup, splits, self.joins, *(section.dump() for section in sections), *map(digest_of, self.files)]


def read_preprocess_file(path: Path, overrides: Sequence[str] = ()) -> PreprocessPlan:
    """Read and check a file of the vendor's preprocessing.

    Args:
        path: of the YAML file; paths in it count from the working directory
        overrides: values by dotted key, `setup.output_dir=out`

    Raises:
        ParamsError: with all problems of the file at once
    """
    document = read_document(path)
    apply_overrides(document, overrides, {})
    problems = Problems(document, path.parent)
    data = document.data
    problems.check_keys(data, (), ("setup", "processing", "dataset"))
    problems.raise_found()
    setup = problems.check(SetupParams, data.get("setup"), ("setup",))
    processing = problems.check(ProcessingParams, data.get("processing"), ("processing",))
    dataset = problems.check(DatasetParams, data.get("dataset"), ("dataset",))
    hook = None if processing is None else _hook(processing, None if setup is None else setup.mode, problems)
    files = () if processing is None else _tokenizer_files(processing, problems)
    if setup is not None:
        _check_source(setup.data, problems)
    if setup is not None and dataset is not None:
        _check_modes(setup.mode, dataset, problems)
    problems.raise_found()
    assert setup is not None and processing is not None and dataset is not None and hook is not None
    warnings = _warnings(processing, dataset, problems)
    return PreprocessPlan(setup, processing, dataset, hook, files, problems.notes, warnings)


def _hook(processing: ProcessingParams, mode: str | None, problems: Problems) -> Hook | TokensHook | None:
    """Return the hook that a file names, with its keys."""
    key = ("processing", "read_hook")
    name = processing.read_hook.removeprefix(_HOOKS)
    if (section := HOOKS.get(name)) is None:
        hint = did_you_mean(name, HOOKS) or f"the hooks are {', '.join(HOOKS)}"
        problems.add(key, f"must be {_HOOKS}NAME with a known name", processing.read_hook, hint)
        return None
    if mode is not None and mode not in section.modes:
        fitting = [name for name, hook in HOOKS.items() if mode in hook.modes]
        problems.add(key, f"must be a hook for mode: {mode}", name, f"these are {', '.join(fitting)}")
        return None
    return problems.check(section, processing.read_hook_kwargs, ("processing", "read_hook_kwargs"))


def _tokenizer_files(processing: ProcessingParams, problems: Problems) -> tuple[Path, ...]:
    """Return the files of the tokenizer."""
    asked, params, below = processing.custom_tokenizer, processing.tokenizer_params, ("processing", "tokenizer_params")
    if processing.huggingface_tokenizer is not None:
        return _local(processing.huggingface_tokenizer, ("processing", "huggingface_tokenizer"), problems)
    if asked == _LLAMA3:
        return _local(params.pretrained_model_name_or_path, (*below, "pretrained_model_name_or_path"), problems)
    if asked in ("neoxtokenizer", "gpt2tokenizer"):
        keys = ("encoder_file",) if asked == "neoxtokenizer" else ("encoder_file", "vocab_file")
        found = []
        for key in keys:
            value = getattr(params, key)
            if value is None:
                problems.add((*below, key), f"must be given for custom_tokenizer: {asked}")
            elif not Path(value).is_file():
                problems.add((*below, key), "must be a file that is there", value)
            else:
                found.append(Path(value))
        return tuple(found)
    if asked is None:
        problems.add(("processing",), "must have huggingface_tokenizer or custom_tokenizer")
    else:
        problems.add_unsupported(("processing", "custom_tokenizer"), asked, _TOKENIZERS)
    return ()


def _local(value: str | None, key: tuple[str, ...], problems: Problems) -> tuple[Path, ...]:
    """Return the file of the tokenizer in a folder."""
    if value is None:
        problems.add(key, "must be given")
    elif (found := Path(value) / TOKENIZER_FILE).is_file():
        return (found,)
    else:
        problems.add(
            key, f"must be a folder with a {TOKENIZER_FILE}", value, "nothing is fetched from a hub: get it first"
        )
    return ()


def _check_source(data: DataParams, problems: Problems) -> None:
    if not Path(data.source).exists():
        is_hub = data.type == "huggingface"
        hint = "nothing is fetched from a hub: save the data set there as JSON Lines or Parquet" if is_hub else None
        problems.add(("setup", "data", "source"), "must be a file or folder that is there", data.source, hint)


def _check_modes(mode: Mode, dataset: DatasetParams, problems: Problems) -> None:
    """Note keys that count in other modes alone."""
    counts = {
        "finetuning": {"sep_token", "chat_template", "truncate_to_msl", "use_vsl"},
        "pretraining": {"pack_sequences", "use_vsl"},
        "dpo": {"max_prompt_length", "response_delimiter"},
        "nlg": set[str](),
    }
    for name in sorted(dataset.model_fields_set - counts[mode]):
        problems.note(("dataset", name), f"mode: {mode} does not read it")


def _warnings(processing: ProcessingParams, dataset: DatasetParams, problems: Problems) -> list[str]:
    """Return traps of the vendor's keys that a file is in."""
    found = []
    if dataset.truncate_to_msl is not None and dataset.truncate_to_msl.prompt_truncation_mode is None:
        where, _ = problems.where(("dataset", "truncate_to_msl"))
        found.append(f"{where}: prompt_truncation_mode is not given, so keep_end is taken")
    weight = processing.semantic_loss_weight.get(_TEXT_REGION)
    if weight is not None:
        where, _ = problems.where(("processing", "semantic_loss_weight"))
        effects = {
            0: "a weight of 0 counts as none given: answers are learned",
            1: "all texts are learned, prompts too",
        }
        found.append(f"{where}: {effects[int(weight)]}")
    return found
