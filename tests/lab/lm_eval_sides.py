"""EleutherAI's lm-eval, by its two ways to a model: in PyTorch, and over HTTP.

`test_client_suites` runs it, in another Python:

    python lm_eval_sides.py make FAMILY FOLDER       writes a small model with random weights, and a tokenizer
    python lm_eval_sides.py compare FOLDER URL NAME  asks both sides the same, and prints the differences as JSON
"""

import json
import sys
from pathlib import Path
from typing import Any

CONTEXT, WINDOW = 256, 64
"""positions of the model; tokens that lm-eval shows it at a time"""
WORDS = "the quick brown fox jumps over a lazy dog while seven wizards box one large jug of cold liquor".split()
END = "<|end|>"


def make(family: str, folder: Path) -> None:
    """Write a model and a tokenizer of bytes in pairs."""
    import torch
    from tokenizers import ByteLevelBPETokenizer
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    trainer = ByteLevelBPETokenizer()
    trainer.train_from_iterator([" ".join(WORDS)] * 20, vocab_size=320, special_tokens=[END], show_progress=False)
    fast = PreTrainedTokenizerFast(tokenizer_object=trainer._tokenizer, eos_token=END, bos_token=END, pad_token=END)
    fast.save_pretrained(folder)
    ends: Any = {"bos_token_id": fast.eos_token_id, "eos_token_id": fast.eos_token_id}
    torch.manual_seed(3)
    if family == "gpt2":
        size = {"n_positions": CONTEXT, "n_embd": 64, "n_layer": 3, "n_head": 4, "initializer_range": 0.1}
        model = GPT2LMHeadModel(GPT2Config(vocab_size=len(fast), **size, **ends))
    else:
        size = {"max_position_embeddings": CONTEXT, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3}
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.1}
        model = LlamaForCausalLM(LlamaConfig(vocab_size=len(fast), **size, **heads, **ends))
    model.save_pretrained(folder)


def compare(folder: str, url: str, name: str) -> dict[str, Any]:
    """Ask both sides the same; return differences of log probabilities and numbers of answers that differ."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    sides = [
        HFLM(pretrained=folder, device="cpu", dtype="float32", batch_size=4, max_length=WINDOW),
        LocalCompletionsAPI(
            model=name,
            base_url=f"{url}/v1/completions",
            tokenizer=folder,
            tokenizer_backend="huggingface",
            batch_size=4,
            # It keeps one token for the answer, and one more for the first of a text.
            max_length=WINDOW + 2,
            max_retries=1,
        ),
    ]

    def ask(kind: str, arguments: list[Any]) -> list[list[Any]]:
        instances = [Instance(kind, {}, each, k) for k, each in enumerate(arguments)]
        return [list(getattr(side, kind)(instances, disable_tqdm=True)) for side in sides]

    texts = [" ".join(WORDS[k:] + WORDS[:k]) for k in range(len(WORDS))]
    pairs = [(text, f" {' '.join(WORDS[k : k + 1 + k % 4])}") for k, text in enumerate(texts)]
    # The likeliest texts, so that "is it what would be chosen" has both answers.
    greedy, _ = ask("generate_until", [(text, {"until": [], "max_gen_toks": 1}) for text in texts])
    encode = sides[0].tok_encode
    pairs += [(a, b) for a, b in zip(texts, greedy, strict=True) if encode(a + b)[:-1] == encode(a)]
    one, other = ask("loglikelihood", pairs)
    rolled, rolled_other = ask("loglikelihood_rolling", [(text * 3,) for text in texts[:4]])
    until = [(text, {"until": stops, "max_gen_toks": 24}) for text in texts for stops in ([" ", "e"], ["qu"])]
    made, made_other = ask("generate_until", until)
    return {
        "loglikelihood": max(abs(a[0] - b[0]) for a, b in zip(one, other, strict=True)),
        "requests": len(pairs),
        "greedy": [sum(each[1] for each in side) for side in (one, other)],
        "greedy_differ": sum(a[1] != b[1] for a, b in zip(one, other, strict=True)),
        "rolling": max(abs(a - b) for a, b in zip(rolled, rolled_other, strict=True)),
        "texts": len(until),
        "texts_differ": sum(a != b for a, b in zip(made, made_other, strict=True)),
        "different_texts": len(set(made)),
    }


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], Path(sys.argv[3]))
    else:
        print(json.dumps(compare(*sys.argv[2:])))
