"""Let Hugging Face's library answer with small models of every family, for cstool's conversions to be compared with.

The library is not needed to run the tests, only to make their numbers anew::

    pip install torch transformers==4.57.1
    python -m tests.reference.make_hf_references FAMILY

writes the `hf_*references.json` of a family beside this file: `decoders`, `encoders`, `others` (T5s and vision
transformers) or `dpr`. What answers is in its `hf_*case*.py`. Of a case it has the names and shapes of the library's
tensors, a digest of what they hold, and what the model answers, by `of_*` below. All is float32, in the library's plain
attention ("eager"); but Falcon's with ALiBi, which adds the slopes twice (in the mask and to the scores), so that one
is the library's default. Of a beam search it has the token that ends a text, and what the search finds: the same in
float64, so no matter of rounding.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from tests.reference import deterministic, hf_cases, hf_dpr_case, hf_encoder_cases, hf_other_cases
from tests.reference.hf_cases import BEAMS, EVERY, NEW_TOKENS, POSITIONS, PROMPT
from tests.reference.recorded_file import as_text, config_digest, folded, nine_digits

LEAST_LEAD = 2e-4
"""by how much each token must be likelier than the next, in logits: else rounding could choose another one"""
FAMILIES = {"decoders": hf_cases, "encoders": hf_encoder_cases, "others": hf_other_cases, "dpr": hf_dpr_case}

Config = Mapping[str, Any]
Model = transformers.PreTrainedModel


def answered(family: str, config: Config) -> dict[str, Any]:
    """Return what is recorded of a case."""
    made, kind = transformers.AutoConfig.for_model(**config), config["model_type"]
    # T5 has one attention, the plain one.
    attention = {} if kind == "t5" else {"attn_implementation": "sdpa" if config.get("alibi") else "eager"}
    classes = transformers.AutoModelForCausalLM if family == "decoders" else None
    make = classes.from_config if classes else getattr(transformers, config["architectures"][0])._from_config
    model = make(made, **attention).float().eval()
    stored = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    stored = {name: shape for name, shape in stored.items() if not _is_left_out(family, kind, name, model)}
    tensors = (hf_other_cases.tensors_of if family == "others" else hf_cases.weights)(stored)
    given = {name: torch.from_numpy(array) for name, array in tensors.items()}
    missing, unknown = model.load_state_dict(given, strict=False)
    if family == "decoders":
        assert not unknown
        assert set(missing) <= set(model._tied_weights_keys or ())
    else:
        model.tie_weights()
    of = {"t5": of_t5, "vit": of_image, "dpr": of_vectors}.get(kind, of_decoder if family == "decoders" else of_encoder)
    with torch.no_grad():
        found = of(model, config)
    return {
        "config_digest": config_digest(config),
        "tensors": folded(stored),
        "digest": deterministic.digest(tensors),
        **found,
    }


def _is_left_out(family: str, kind: str, name: str, model: Model) -> bool:
    """Say whether a tensor is tied to another one, or no weight."""
    is_tied = model.config.tie_word_embeddings
    if family == "decoders":
        return is_tied and name in (model._tied_weights_keys or ())
    if family == "others":
        return name.endswith(("embed_tokens.weight", *(("lm_head.weight",) if is_tied else ())))
    if family == "dpr":
        return name.endswith("position_ids")
    left = ("decoder.bias", *(("decoder.weight",) if is_tied else ()), "inv_freq", "position_ids")
    return name.endswith(left) or "contact_head" in name or (kind == "esm" and "position_embeddings" in name)


def of_decoder(model: Model, _config: Config) -> dict[str, Any]:
    """The likeliest tokens that follow the prompt, logits at some positions of both together, and a search."""
    ids, leads = list(PROMPT), []
    for _ in range(NEW_TOKENS):
        best = model(torch.tensor([ids])).logits[0, -1].topk(2)
        ids.append(int(best.indices[0]))
        leads.append(float(best.values[0] - best.values[1]))
    logits = model(torch.tensor([ids])).logits[0]
    assert min(leads) > LEAST_LEAD, min(leads)
    tokens = ids[len(PROMPT) :]
    return {
        "tokens": tokens,
        "beams": beams_of(model, torch.tensor([PROMPT]), tokens),
        "logits": [nine_digits(logits[position, ::EVERY].tolist()) for position in POSITIONS],
    }


def of_t5(model: Model, _config: Config) -> dict[str, Any]:
    """The likeliest tokens that follow the source, logits at each of them, and a search."""
    # The library's cache has a place for as many layers as the encoder has.
    model.config.use_cache = False
    source, ids, leads = torch.tensor([hf_other_cases.SOURCE]), [hf_other_cases.START], []
    for _ in range(NEW_TOKENS):
        logits = model(input_ids=source, decoder_input_ids=torch.tensor([ids])).logits[0]
        best = logits[-1].topk(2)
        ids.append(int(best.indices[0]))
        leads.append(float(best.values[0] - best.values[1]))
    assert min(leads) > LEAST_LEAD, min(leads)
    tokens = ids[1:]
    settings = {"do_sample": False, "max_new_tokens": NEW_TOKENS, "eos_token_id": -1, "pad_token_id": 0}
    assert model.generate(source, **settings, use_cache=False)[0, 1:].tolist() == tokens
    beams = beams_of(model, source, tokens)
    return {"tokens": tokens, "beams": beams, "logits": [nine_digits(row.tolist()) for row in logits]}


def of_image(model: Model, config: Config) -> dict[str, Any]:
    """The logits of an image."""
    pixels = torch.from_numpy(np.ascontiguousarray(hf_other_cases.image(config)))[None]
    return {"logits": nine_digits(model(pixel_values=pixels).logits[0].tolist())}


def _of_text(model: Model, cases: Any, has_segments: bool) -> Any:
    inputs = {"input_ids": torch.tensor([cases.TOKENS]), "attention_mask": torch.ones(1, len(cases.TOKENS)).long()}
    return model(**inputs, **({"token_type_ids": torch.tensor([cases.SEGMENTS])} if has_segments else {}))


def of_encoder(model: Model, config: Config) -> dict[str, Any]:
    """All logits: of each token, of each text, or of whether the texts follow each other."""
    found = _of_text(model, hf_encoder_cases, config["model_type"] == "bert")
    logits = {"tokens": found.get("prediction_logits", found.get("logits"))[0]}
    if "seq_relationship_logits" in found:
        logits["pairs"] = found["seq_relationship_logits"][0]
    return {"logits": {name: nine_digits(values.reshape(-1).tolist()) for name, values in logits.items()}}


def of_vectors(model: Model, _config: Config) -> dict[str, Any]:
    """The vector of a text."""
    return {"vector": nine_digits(_of_text(model, hf_dpr_case, True).pooler_output[0].tolist())}


def beams_of(model: Model, ids: torch.Tensor, greedy: list[int]) -> dict[str, Any]:
    """Return what a beam search finds, and the token that ends texts in it.

    That is one with which the search finds something else than the likeliest tokens, and a text that ends before its
    time, if there is such a one.

    Args:
        ids: (1, S), what is gone on from
        greedy: the likeliest tokens
    """
    fits: dict[int, tuple[bool, int, list[int]]] = {}
    for eos in range(model.get_output_embeddings().out_features):
        tokens, is_clear = _searched(model.float(), ids, eos)
        if is_clear:
            fits[eos] = tokens == greedy[: len(tokens)], abs(len(tokens) - NEW_TOKENS // 2), tokens
    for eos, (_, _, tokens) in sorted(fits.items(), key=lambda fit: (fit[1][:2], fit[0])):
        if _searched(model.double(), ids, eos)[0] == tokens:
            model.float()
            return {"eos": eos, "tokens": tokens}
    raise AssertionError("rounding decides every search")


def _searched(model: Model, ids: torch.Tensor, eos: int) -> tuple[list[int], bool]:
    """Return the tokens that a beam search finds, and whether the best text is clearly better than the second."""
    found = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        num_beams=BEAMS,
        num_return_sequences=2,
        max_new_tokens=NEW_TOKENS,
        length_penalty=1.0,
        early_stopping=False,
        eos_token_id=eos,
        pad_token_id=0,
        use_cache=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    read = 1 if model.config.is_encoder_decoder else ids.shape[1]
    tokens = found.sequences[0, read:].tolist()
    best, second = found.sequences_scores.tolist()
    return tokens[: tokens.index(eos) + 1] if eos in tokens else tokens, best - second > LEAST_LEAD


def main() -> None:
    """Write the file of a family."""
    parser = argparse.ArgumentParser(description="Record answers of Hugging Face's library.")
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--output", type=Path, help="a file for them; beside this one if it is left out")
    asked = parser.parse_args()
    module: Any = FAMILIES[asked.family]
    name, configs = ("encoders", module.CONFIGS) if asked.family == "dpr" else ("cases", module.CASES)
    cases = {case: answered(asked.family, config) for case, config in configs.items()}
    made_by = f"transformers {transformers.__version__}, torch {torch.__version__}"
    (asked.output or module.RECORDED).write_text(as_text({"made_by": made_by, name: cases}))


if __name__ == "__main__":
    main()
