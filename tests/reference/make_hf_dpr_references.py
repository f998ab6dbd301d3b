"""Let Hugging Face's library make vectors with a small DPR, for cstool's conversion to be compared with.

The library is not needed to run the tests, only to make their numbers anew::

    pip install torch transformers==4.57.1
    python -m tests.reference.make_hf_dpr_references

writes `hf_dpr_references.json` beside this file. What answers is in `hf_dpr_case.py`. Of each encoder it has the names
and shapes of the library's tensors, a digest of what they hold, and the vector of a text. Everything is float32, in the
library's plain attention ("eager").
"""

import json
import re
from typing import Any

import torch
import transformers

from tests.reference import deterministic
from tests.reference.curve_file import config_digest, nine_digits
from tests.reference.hf_cases import weights
from tests.reference.hf_dpr_case import CONFIGS, RECORDED, SEGMENTS, TOKENS


def answered(config: dict[str, Any]) -> dict[str, Any]:
    """Return what is recorded of an encoder."""
    kind = getattr(transformers, config["architectures"][0])
    model = kind._from_config(transformers.AutoConfig.for_model(**config), attn_implementation="eager").float().eval()
    stored = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    stored = {name: shape for name, shape in stored.items() if not name.endswith("position_ids")}
    tensors = weights(stored)
    model.load_state_dict({name: torch.from_numpy(array) for name, array in tensors.items()}, strict=False)
    with torch.no_grad():
        found = model(
            input_ids=torch.tensor([TOKENS]),
            attention_mask=torch.ones(1, len(TOKENS), dtype=torch.long),
            token_type_ids=torch.tensor([SEGMENTS]),
        )
    return {
        "config_digest": config_digest(config),
        "tensors": {name: list(shape) for name, shape in stored.items()},
        "digest": deterministic.digest(tensors),
        "vector": nine_digits(found.pooler_output[0].tolist()),
    }


def main() -> None:
    """Write the file."""
    cases = {folder: answered(config) for folder, config in CONFIGS.items()}
    made_by = f"transformers {transformers.__version__}, torch {torch.__version__}"
    text = json.dumps({"made_by": made_by, "encoders": cases}, indent=1)
    # Lists of numbers read better on one line.
    text = re.sub(r"\[([^][{}]*)\]", lambda found: f"[{' '.join(found[1].split())}]", text)
    RECORDED.write_text(text + "\n")


if __name__ == "__main__":
    main()
