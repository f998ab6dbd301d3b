"""Small encoders, and decoders that tell classes, of every class of Hugging Face's that is converted. No cstool."""

from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("hf_encoder_references.json")
TOKENS = [2, 14, 4, 59, 26, 4, 5, 31, 3]
"""with two masks (token 4)"""
SEGMENTS = [0, 0, 0, 0, 0, 1, 1, 1, 1]

_SMALL = {"vocab_size": 61, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6}
_SMALL |= {"intermediate_size": 80}
_BERT = {**_SMALL, "model_type": "bert", "max_position_embeddings": 32}
_ESM = {**_SMALL, "model_type": "esm", "mask_token_id": 4, "pad_token_id": 1, "max_position_embeddings": 34}
_ESM |= {"position_embedding_type": "rotary"}
_LLAMA = {**_SMALL, "num_key_value_heads": 3, "max_position_embeddings": 32, "pad_token_id": 0}
_GPT2 = {"vocab_size": 61, "n_embd": 48, "n_layer": 2, "n_head": 6, "n_positions": 32}
_LABELS = {"id2label": {"0": "A", "1": "B", "2": "C"}, "label2id": {"A": 0, "B": 1, "C": 2}}

CASES: dict[str, dict[str, Any]] = {
    "bert": {**_BERT, "architectures": ["BertForPreTraining"]},
    "bert_untied": {**_BERT, "architectures": ["BertForMaskedLM"], "hidden_act": "relu", "tie_word_embeddings": False},
    "roberta": {
        **_SMALL,
        "model_type": "roberta",
        "architectures": ["RobertaForMaskedLM"],
        "max_position_embeddings": 34,
        "type_vocab_size": 1,
        "pad_token_id": 1,
        "layer_norm_eps": 1e-5,
    },
    "esm2": {**_ESM, "architectures": ["EsmForMaskedLM"], "token_dropout": True},
    "esm2_plain": {**_ESM, "architectures": ["EsmForMaskedLM"], "emb_layer_norm_before": True},
    "classifier": {**_BERT, **_LABELS, "architectures": ["BertForSequenceClassification"]},
    "gpt2_classifier": {**_GPT2, **_LABELS, "model_type": "gpt2", "architectures": ["GPT2ForSequenceClassification"]},
    **{
        f"{name.lower()}_classifier": {
            **_LLAMA,
            **_LABELS,
            **({"head_dim": 8} if name in ("Gemma2", "Qwen3") else {}),
            "model_type": name.lower(),
            "architectures": [f"{name}ForSequenceClassification"],
        }
        for name in ("Llama", "Mistral", "Qwen2", "Qwen3", "Gemma2")
    },
    "token_classifier": {**_BERT, **_LABELS, "architectures": ["BertForTokenClassification"], "hidden_act": "gelu_new"},
}
