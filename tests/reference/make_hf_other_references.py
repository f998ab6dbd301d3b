"""Let Hugging Face's library answer with small T5s and vision transformers, for cstool's conversions to compare with.

The library is not needed to run the tests, only to make their numbers anew::

    pip install torch transformers==4.57.1
    python -m tests.reference.make_hf_other_references

writes `hf_other_references.json` beside this file. What answers is in `hf_other_cases.py`. Of a case it has the names
and shapes of the library's tensors and a digest of what they hold. Of a T5 the likeliest tokens that follow the source,
the logits at each of them, and what a beam search finds (see `make_hf_references`); of a vision transformer the
logits of an image. Everything is float32, in the library's plain attention ("eager").
"""

import json
import re
from typing import Any

import torch
import transformers

from tests.reference import deterministic
from tests.reference.curve_file import config_digest, nine_digits
from tests.reference.hf_cases import NEW_TOKENS
from tests.reference.hf_other_cases import CASES, RECORDED, SOURCE, START, image, tensors_of
from tests.reference.make_hf_references import LEAST_LEAD, beams_of


def answered(config: dict[str, Any]) -> dict[str, Any]:
    """Return what is recorded of a case."""
    made = transformers.AutoConfig.for_model(**config)
    kind = getattr(transformers, config["architectures"][0])
    # T5 has one attention, the plain one.
    attention = {} if config["model_type"] == "t5" else {"attn_implementation": "eager"}
    model = kind._from_config(made, **attention).float().eval()
    tied = ("embed_tokens.weight", *(("lm_head.weight",) if made.tie_word_embeddings else ()))
    stored = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items() if not name.endswith(tied)}
    tensors = tensors_of(stored)
    model.load_state_dict({name: torch.from_numpy(array) for name, array in tensors.items()}, strict=False)
    model.tie_weights()
    with torch.no_grad():
        found = _t5(model) if config["model_type"] == "t5" else _vit(model, config)
    return {
        "config_digest": config_digest(config),
        "tensors": {name: list(shape) for name, shape in stored.items()},
        "digest": deterministic.digest(tensors),
        **found,
    }


def _t5(model: transformers.PreTrainedModel) -> dict[str, Any]:
    # The library's cache has a place for as many layers as the encoder has.
    model.config.use_cache = False
    source, ids, leads = torch.tensor([SOURCE]), [START], []
    for _ in range(NEW_TOKENS):
        logits = model(input_ids=source, decoder_input_ids=torch.tensor([ids])).logits[0]
        best = logits[-1].topk(2)
        ids.append(int(best.indices[0]))
        leads.append(float(best.values[0] - best.values[1]))
    assert min(leads) > LEAST_LEAD, min(leads)
    tokens = ids[1:]
    settings = {"do_sample": False, "max_new_tokens": NEW_TOKENS, "eos_token_id": -1, "pad_token_id": 0}
    settings["use_cache"] = False
    assert model.generate(source, **settings)[0, 1:].tolist() == tokens
    return {
        "tokens": tokens,
        "beams": beams_of(model, source, tokens),
        "logits": [nine_digits(row.tolist()) for row in logits],
    }


def _vit(model: transformers.PreTrainedModel, config: dict[str, Any]) -> dict[str, Any]:
    return {"logits": nine_digits(model(pixel_values=torch.from_numpy(image(config))[None]).logits[0].tolist())}


def main() -> None:
    """Write the file."""
    cases = {name: answered(config) for name, config in CASES.items()}
    made_by = f"transformers {transformers.__version__}, torch {torch.__version__}"
    text = json.dumps({"made_by": made_by, "cases": cases}, indent=1)
    # Lists of numbers read better on one line.
    text = re.sub(r"\[([^][{}]*)\]", lambda found: f"[{' '.join(found[1].split())}]", text)
    RECORDED.write_text(text + "\n")


if __name__ == "__main__":
    main()
