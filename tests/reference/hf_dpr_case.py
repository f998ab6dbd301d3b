"""The small DPR of Hugging Face's that is converted: configs by folder, and what is asked of it. No cstool."""

from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("hf_dpr_references.json")
TOKENS = [2, 14, 27, 59, 26, 4, 5, 31, 3]
SEGMENTS = [0, 0, 0, 0, 0, 1, 1, 1, 1]

_ENCODER = {"model_type": "dpr", "vocab_size": 61, "hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 2}
_ENCODER |= {"intermediate_size": 80, "max_position_embeddings": 32}
CONFIGS: dict[str, dict[str, Any]] = {
    "question_encoder": {**_ENCODER, "architectures": ["DPRQuestionEncoder"]},
    "ctx_encoder": {
        **_ENCODER,
        "architectures": ["DPRContextEncoder"],
        "num_hidden_layers": 1,
        "hidden_act": "gelu_new",
        "layer_norm_eps": 1e-5,
    },
}
