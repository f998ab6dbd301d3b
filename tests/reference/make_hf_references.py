"""Let Hugging Face's library answer with small models of every family, for cstool's conversions to be compared with.

The library is not needed to run the tests, only to make their numbers anew::

    pip install torch transformers==4.57.1
    python -m tests.reference.make_hf_references

writes `hf_references.json` beside this file. What answers is in `hf_cases.py`. Of a case it has the names and shapes of
the library's tensors, a digest of what they hold, the tokens that follow the prompt, each the likeliest, and logits at
some positions of prompt and tokens together. Of a beam search it has the token that ends a text, and what the search
finds: the same in float64, so no matter of rounding. All is float32, in the library's plain attention ("eager"); but
Falcon's with ALiBi, which adds the slopes twice (in the mask and to the scores), so that one is the library's default.
"""

import json
import re
from typing import Any

import torch
import transformers

from tests.reference import deterministic
from tests.reference.curve_file import config_digest, nine_digits
from tests.reference.hf_cases import BEAMS, CASES, EVERY, NEW_TOKENS, POSITIONS, PROMPT, RECORDED, weights

LEAST_LEAD = 2e-4
"""by how much each token must be likelier than the next, in logits: else rounding could choose another one"""


def answered(config: dict[str, Any]) -> dict[str, Any]:
    """Return what is recorded of a case."""
    made = transformers.AutoConfig.for_model(**config)
    attention = "sdpa" if config.get("alibi") else "eager"
    model = transformers.AutoModelForCausalLM.from_config(made, attn_implementation=attention).float().eval()
    stored = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    for tied in model._tied_weights_keys or () if made.tie_word_embeddings else ():
        stored.pop(tied, None)
    tensors = weights(stored)
    missing, unknown = model.load_state_dict({k: torch.from_numpy(v) for k, v in tensors.items()}, strict=False)
    assert not unknown
    assert set(missing) <= set(model._tied_weights_keys or ())
    ids, leads = list(PROMPT), []
    with torch.no_grad():
        for _ in range(NEW_TOKENS):
            best = model(torch.tensor([ids])).logits[0, -1].topk(2)
            ids.append(int(best.indices[0]))
            leads.append(float(best.values[0] - best.values[1]))
        logits = model(torch.tensor([ids])).logits[0]
        beams = beams_of(model, torch.tensor([PROMPT]), ids[len(PROMPT) :])
    assert min(leads) > LEAST_LEAD, min(leads)
    return {
        "config_digest": config_digest(config),
        "tensors": {name: list(shape) for name, shape in stored.items()},
        "digest": deterministic.digest(tensors),
        "tokens": ids[len(PROMPT) :],
        "beams": beams,
        "logits": [nine_digits(logits[position, ::EVERY].tolist()) for position in POSITIONS],
    }


def beams_of(model: transformers.PreTrainedModel, ids: torch.Tensor, greedy: list[int]) -> dict[str, Any]:
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


def _searched(model: transformers.PreTrainedModel, ids: torch.Tensor, eos: int) -> tuple[list[int], bool]:
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
    """Write the file."""
    cases = {}
    for name, config in CASES.items():
        cases[name] = answered(config)
        print(name, cases[name]["tokens"], cases[name]["beams"], flush=True)
    made_by = f"transformers {transformers.__version__}, torch {torch.__version__}"
    text = json.dumps({"made_by": made_by, "cases": cases}, indent=1)
    # Lists of numbers read better on one line.
    text = re.sub(r"\[([^][{}]*)\]", lambda found: f"[{' '.join(found[1].split())}]", text)
    RECORDED.write_text(text + "\n")


if __name__ == "__main__":
    main()
