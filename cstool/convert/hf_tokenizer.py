"""The tokenizer of a model as Hugging Face's library loads it: tokenizer.json, and its class name."""

import json
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path
from typing import Any

from cstool.convert.hf_encoders import FOLDERS
from cstool.convert.hf_family import HfModel
from cstool.foundation.errors import CheckpointError, DataError
from cstool.model.params import EncoderDecoderParams, VisionTransformerParams
from cstool.training.data import ByteTokenizer, Tokenizer, load_tokenizer, tokenizer_beside, tokenizer_of
from cstool.training.data.pair_text import start_of
from cstool.training.data.tokenizer_files import CONFIG_FILE, TEMPLATE_FILE, TOKENIZER_FILE, config_beside, files_beside


@dataclass(frozen=True)
class HfTokenizer:
    """A tokenizer to write beside a model.

    Args:
        files: their texts by name
        ids: entries of config.json on it: bos_token_id and eos_token_id, None for none; the decoder's first token
    """

    files: dict[str, str]
    ids: dict[str, int | None]


def tokenizer_file(source: Path, is_hf: bool) -> Path | None:
    """Where the tokenizers JSON file of a checkpoint, or of a model of Hugging Face's, lies beside it; None if nowhere.

    Of a DPR, whose encoders share a tokenizer, it is the file of the question encoder.
    """
    folder = source if source.is_dir() else source.parent
    places = (
        (folder / TOKENIZER_FILE, folder / FOLDERS["question"] / TOKENIZER_FILE)
        if is_hf
        else (tokenizer_beside(source),)
    )
    return next((place for place in places if place.is_file()), None)


def choose_tokenizer(
    named: str | None, folders: tuple[Path, ...], beside: Path | None, notes: list[str]
) -> Tokenizer | None:
    """Return the tokenizer that was asked for by its file or "bytes", or the tokenizer of the training data.

    Where the data do not say it, it is the file `beside` the source, see `tokenizer_file`. Where there is none, return
    None, and note why; one that was asked for and cannot be loaded raises DataError.
    """
    if named is not None:
        return load_tokenizer(named, folders)
    why = "no data set of the params says which it is"
    try:
        for folder in folders:
            if (found := tokenizer_of(folder)) is not None:
                return found
        if beside is not None:
            return load_tokenizer(beside)
    except DataError as error:
        why = error.message
    notes.append(f"the tokenizer is left out: {why}; --tokenizer names one")
    return None


def describe_tokenizer(tokenizer: Tokenizer, model: HfModel) -> HfTokenizer:
    """Files and special tokens of a tokenizer as they are written, or raise CheckpointError if the model lacks some."""
    if isinstance(model, VisionTransformerParams):
        raise CheckpointError("--tokenizer: must be left out for a model of images")
    if tokenizer.vocab_size > model.vocab_size:
        raise CheckpointError(
            f"{tokenizer.name}: must have at most the {model.vocab_size:,} tokens of the model, got "
            f"{tokenizer.vocab_size:,}",
            "--tokenizer names that of the training data",
        )
    longest = model.positions[0] if isinstance(model, EncoderDecoderParams) else model.max_position_embeddings
    begins = tokenizer.begin[0] if len(tokenizer.begin) == 1 and tokenizer.begins_texts else None
    ends = tokenizer.end_of_text
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **({} if longest is None else {"model_max_length": longest}),
        "clean_up_tokenization_spaces": False,
    }
    if isinstance(tokenizer, ByteTokenizer):
        # Its token between documents is a byte like others: named as a special one, it would be cut out of texts.
        text = json.dumps(_of_bytes(), ensure_ascii=False)
    else:
        try:
            text = Path(tokenizer.name).read_text(encoding="utf-8")
        except OSError as error:
            raise CheckpointError(f"{tokenizer.name}: must be readable, got: {error.strerror}") from None
        if tokenizer.begin and not tokenizer.begins_texts:
            text = _without_begin(text)
        names = {"bos_token": begins, "eos_token": ends}
        config |= {name: tokenizer.decode([token]) for name, token in names.items() if token is not None}
    files = {TOKENIZER_FILE: text, **_template_of(tokenizer, config)}
    files[CONFIG_FILE] = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    ids = {"bos_token_id": begins, "eos_token_id": ends}
    if isinstance(model, EncoderDecoderParams) and model.decoder_start_token_id is None:
        ids["decoder_start_token_id"] = start_of(tokenizer)
    return HfTokenizer(files, ids)


def _template_of(tokenizer: Tokenizer, config: dict[str, Any]) -> dict[str, str]:
    """Return the file of the tokenizer's own chat template; one that is in its configuration goes into the new one."""
    if isinstance(tokenizer, ByteTokenizer):
        return {}
    own = Path(tokenizer.name)
    if (found := config_beside(own).get("chat_template")) is not None:
        config["chat_template"] = found
    path = files_beside(own).get(TEMPLATE_FILE)
    return {} if path is None else {TEMPLATE_FILE: path.read_text(encoding="utf-8")}


def _without_begin(text: str) -> str:
    """Return a tokenizers JSON file whose template puts nothing before a text: the model was trained without it."""
    document = json.loads(text)
    document["post_processor"] = _ends_alone(document["post_processor"])
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _ends_alone(processor: dict[str, Any]) -> dict[str, Any]:
    """Return the last step of a tokenizer on its tokens, without the tokens that it puts before them."""
    kind = processor["type"]
    if kind == "Sequence":
        return {**processor, "processors": [*map(_ends_alone, processor["processors"])]}
    if kind in ("BertProcessing", "RobertaProcessing"):
        name, number = processor["sep"]
        end = {"SpecialToken": {"id": name, "type_id": 0}}
        one, other = ({"Sequence": {"id": which, "type_id": 0}} for which in "AB")
        return {
            "type": "TemplateProcessing",
            "single": [one, end],
            "pair": [one, end, other, end],
            "special_tokens": {name: {"id": name, "ids": [number], "tokens": [name]}},
        }
    if kind != "TemplateProcessing":
        return processor
    pieces = {name: [*dropwhile(lambda piece: "SpecialToken" in piece, processor[name])] for name in ("single", "pair")}
    return {**processor, **pieces}


def _of_bytes() -> dict[str, Any]:
    """Return the tokenizer of bytes as the package `tokenizers` writes one: the pairs that it may join are none.

    Each byte stands as a character there: visible ones as themselves, the others as characters from U+0100 on. Source:
    Radford et al., 2019, and the code released with it.
    """
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in visible]
    characters = {byte: chr(byte) for byte in visible} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {characters[byte]: byte for byte in range(256)},
            "merges": [],
        },
    }
