"""Small configs and records of the vendor's preprocessing: the same for the vendor's code and for the tests."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PLACE = Path(__file__).with_name("vendor_preprocessing.json")
"""what the vendor's code made of them"""
HOOKS = "cerebras.modelzoo.data_preparation.data_preprocessing.hooks:"
SPECIAL = ("<|begin|>", "<|eos|>", "<|head|>", "<|eot|>", "<|pad|>")
MERGES = ("Ġ t", "h e", "> Y", "a n", "e s", "Ġt he", "d A")
LLAMA = (
    "{{ bos_token }}{% for m in messages %}<|head|>{{ m['role'] }}\n\n{{ m['content'] | trim }}<|eot|>{% endfor %}"
    "{% if add_generation_prompt %}<|head|>assistant\n\n{% endif %}"
)
ONE_END = (
    "{% for m in messages %}{% if m['role'] == 'user' %}[Q] {{ m['content'] }} [A]"
    "{% else %} {{ m['content'] }}{{ eos_token }}\n{% endif %}{% endfor %}"
)
TEMPLATES: Mapping[str, str | None] = {"llama": LLAMA, "one end": ONE_END, "none": None}
PAIRS = (
    {"q": "Why is the sky blue?", "a": "Yes, the air."},
    {"q": "", "a": "an answer to nothing"},
    {"q": "Größe des Hauses 😀", "a": "Über 20 m — the end 😀"},
    {"q": "a", "a": "b"},
    {"q": 12, "a": "twelve and the rest"},
)
LONG_PAIRS = (
    {"q": "the man and the sea and the sky", "a": "the end"},
    {"q": "an hour", "a": "the land and the sea and the sky and the man"},
    {"q": "the man and the sea and the sand", "a": "the land and the sea and the sky"},
)
CHATS: Sequence[Mapping[str, Any]] = (
    {"messages": [("user", " Hello the man "), ("assistant", " Hi.\n")]},
    {
        "messages": [
            ("system", " Be short. "),
            ("user", "Why?"),
            ("assistant", "the end"),
            ("user", "So?"),
            ("assistant", "Yes"),
        ]
    },
    {"messages": [("user", "One"), ("assistant", "1"), ("user", "Two")]},
    {"messages": [("user", "One"), ("user", "Two")]},
    {"messages": [("user", "Where to?"), ("assistant", "")]},
    {"messages": [("system", ""), ("user", "Größe? “so”"), ("assistant", "1,85 m 😀")]},
    {"messages": [("assistant", "the first word"), ("user", "is mine")]},
    {"messages": []},
)
LONG_CHATS: Sequence[Mapping[str, Any]] = (
    {"messages": [("user", "the man and the sea"), ("assistant", "the end"), ("user", "So?"), ("assistant", "Yes")]},
    {"messages": [("user", "Yes?"), ("assistant", "the man and the sea and the sky and the land and the air")]},
)
TEXTS = (
    {"text": " the man and the sea and the sky "},
    {"text": "an end"},
    {"text": ""},
    {"text": "the land and the air, the hand and the sand; the rest is the end of the tale"},
    {"text": "a"},
)
PREFERENCES = (
    {"p": " Why? ", "c": " the end ", "r": "an hour"},
    {"p": "the man and the sea and the sky and the land", "c": "yes", "r": "no, the air"},
    {"p": "So", "c": "the land and the sea and the sky and the man and the air", "r": "an"},
)
DIALOGUES = (
    {"c": "Human: Why? Assistant: the end", "r": "Human: Why? Assistant: an hour"},
    {"c": "nobody", "r": "nobody else"},
)
NUMBERS = ({"x": [5, 6, 7], "y": [8, 9]}, {"x": [3, 4], "y": [1, 2, 3, 4]})


def case(
    mode: str,
    hook: str,
    kwargs: Mapping[str, str],
    records: Sequence[Mapping[str, Any]],
    *,
    template: str = "llama",
    begins: bool = True,
    processing: Mapping[str, Any] | None = None,
    dataset: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a case: `processing` and `dataset` are sections of the vendor's file, `begins` is of the tokenizer."""
    processed = {"max_seq_length": 40, "min_sequence_len": 3, "use_ftfy": False, **(processing or {})}
    return {
        "mode": mode,
        "hook": hook,
        "kwargs": dict(kwargs),
        "records": [
            {
                key: [{"role": r, "content": c} for r, c in value] if key == "messages" else value
                for key, value in record.items()
            }
            for record in records
        ],
        "template": template,
        "begins": begins,
        "processing": processed,
        "dataset": dict(dataset or {}),
    }


_PAIR = {"prompt_key": "q", "completion_key": "a"}
_CHAT = {"multi_turn_key": "messages", "multi_turn_role_key": "role", "multi_turn_content_key": "content"}
_TEXT = {"text_key": "text"}
_PREFERENCE = {"prompt_key": "p", "chosen_key": "c", "rejected_key": "r"}
CASES: Mapping[str, dict[str, Any]] = {
    "pairs": case("finetuning", "prompt_completion_text_read_hook", _PAIR, PAIRS),
    "pairs without separator": case(
        "finetuning", "prompt_completion_text_read_hook", _PAIR, PAIRS, begins=False, dataset={"sep_token": None}
    ),
    "a shared token": case(
        "finetuning",
        "prompt_completion_text_read_hook",
        _PAIR,
        [{"q": "the end", "a": "A man"}],
        dataset={"sep_token": None},
    ),
    "pairs as chats": case("finetuning", "prompt_completion_chat_read_hook", _PAIR, PAIRS),
    "all is learned": case(
        "finetuning", "prompt_completion_text_read_hook", _PAIR, PAIRS, processing={"semantic_loss_weight": {"text": 1}}
    ),
    "chats": case("finetuning", "chat_read_hook", _CHAT, CHATS, processing={"max_seq_length": 64}),
    "chats of another end": case(
        "finetuning", "chat_read_hook", _CHAT, CHATS, processing={"max_seq_length": 64, "end_of_turn_token": "<|eot|>"}
    ),
    "ends in texts": case(
        "finetuning",
        "chat_read_hook",
        _CHAT,
        [{"messages": [("user", "a <|eot|> b"), ("assistant", "c<|eot|>d"), ("user", "e"), ("assistant", "f")]}],
        processing={"max_seq_length": 96, "end_of_turn_token": "<|eot|>"},
    ),
    "one end": case(
        "finetuning", "chat_read_hook", _CHAT, CHATS, template="one end", processing={"max_seq_length": 64}
    ),
    "no template": case(
        "finetuning", "chat_read_hook", _CHAT, CHATS, template="none", processing={"max_seq_length": 96}
    ),
    "cut pairs, keep_start": case(
        "finetuning",
        "prompt_completion_text_read_hook",
        _PAIR,
        LONG_PAIRS,
        begins=False,
        processing={"max_seq_length": 30},
        dataset={"truncate_to_msl": {"prompt_truncation_mode": "keep_start", "max_turn_length": 8}},
    ),
    "cut pairs, keep_end": case(
        "finetuning",
        "prompt_completion_text_read_hook",
        _PAIR,
        LONG_PAIRS,
        begins=False,
        processing={"max_seq_length": 30},
        dataset={"truncate_to_msl": {"truncation_mode": "keep_start", "max_turn_length": 8}},
    ),
    "cut chats": case(
        "finetuning",
        "chat_read_hook",
        _CHAT,
        LONG_CHATS,
        processing={"max_seq_length": 44},
        dataset={"truncate_to_msl": {"prompt_truncation_mode": "keep_end", "max_turn_length": 4}},
    ),
    "texts": case("pretraining", "text_read_hook", _TEXT, TEXTS, processing={"max_seq_length": 16}),
    "texts, one by one": case(
        "pretraining",
        "text_read_hook",
        _TEXT,
        TEXTS,
        processing={"max_seq_length": 16},
        dataset={"pack_sequences": False},
    ),
    "preferences": case("dpo", "dpo_read_hook", _PREFERENCE, PREFERENCES, dataset={"max_prompt_length": 12}),
    "dialogues": case(
        "dpo",
        "dpo_read_hook",
        {"chosen_key": "c", "rejected_key": "r"},
        DIALOGUES,
        template="none",
        processing={"max_seq_length": 120},
    ),
    "numbers": case(
        "nlg", "nlg_read_hook", {"context_key": "x", "completion_key": "y"}, NUMBERS, processing={"max_seq_length": 10}
    ),
}


def write_tokenizer(folder: Path, *, template: str, begins: bool) -> None:
    """Write the files of a tokenizer: a byte-level BPE, its names of tokens, and its chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    folder.mkdir(parents=True, exist_ok=True)
    pairs = [(first, second) for first, _, second in (merge.partition(" ") for merge in MERGES)]
    words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in pairs)]
    made = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, pairs))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([*SPECIAL])
    if begins:
        made.post_processor = processors.TemplateProcessing(
            single="<|begin|> $A", pair="<|begin|> $A $B", special_tokens=[("<|begin|>", made.token_to_id("<|begin|>"))]
        )
    made.save(str(folder / "tokenizer.json"))
    named = {"bos_token": "<|begin|>", "eos_token": "<|eos|>", "pad_token": "<|pad|>"}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **named}
    if TEMPLATES[template] is not None:
        config["chat_template"] = str(TEMPLATES[template])
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
