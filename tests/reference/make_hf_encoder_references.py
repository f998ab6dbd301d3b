"""Let Hugging Face's library answer with small encoders of every class, for cstool's conversions to be compared with.

The library is not needed to run the tests, only to make their numbers anew::

    pip install torch transformers==4.57.1
    python -m tests.reference.make_hf_encoder_references

writes `hf_encoder_references.json` beside this file. What answers is in `hf_encoder_cases.py`. Of a case it has the
names and shapes of the library's tensors, a digest of what they hold, and all logits: of each token, of each text, or
of whether the texts follow each other. Everything is float32, in the library's plain attention ("eager").
"""

import json
import re
from typing import Any

import torch
import transformers

from tests.reference import deterministic
from tests.reference.curve_file import config_digest, nine_digits
from tests.reference.hf_cases import weights
from tests.reference.hf_encoder_cases import CASES, RECORDED, SEGMENTS, TOKENS


def answered(config: dict[str, Any]) -> dict[str, Any]:
    """Return what is recorded of a case."""
    made = transformers.AutoConfig.for_model(**config)
    kind = getattr(transformers, config["architectures"][0])
    model = kind._from_config(made, attn_implementation="eager").float().eval()
    stored = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    tables = ("decoder.weight",) if made.tie_word_embeddings else ()
    left = {name for name in stored if name.endswith(("decoder.bias", *tables))}
    stored = {name: shape for name, shape in stored.items() if name not in left and "contact_head" not in name}
    stored = {name: shape for name, shape in stored.items() if not name.endswith(("inv_freq", "position_ids"))}
    if config["model_type"] == "esm":
        stored = {name: shape for name, shape in stored.items() if "position_embeddings" not in name}
    tensors = weights(stored)
    model.load_state_dict({name: torch.from_numpy(array) for name, array in tensors.items()}, strict=False)
    model.tie_weights()
    inputs = {"input_ids": torch.tensor([TOKENS]), "attention_mask": torch.ones(1, len(TOKENS), dtype=torch.long)}
    if config["model_type"] == "bert":
        inputs["token_type_ids"] = torch.tensor([SEGMENTS])
    with torch.no_grad():
        found = model(**inputs)
    logits = {"tokens": found.get("prediction_logits", found.get("logits"))[0]}
    if "seq_relationship_logits" in found:
        logits["pairs"] = found["seq_relationship_logits"][0]
    return {
        "config_digest": config_digest(config),
        "tensors": {name: list(shape) for name, shape in stored.items()},
        "digest": deterministic.digest(tensors),
        "logits": {name: nine_digits(values.reshape(-1).tolist()) for name, values in logits.items()},
    }


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
