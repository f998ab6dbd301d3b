"""Small chat templates, each in the style of a family of models, and conversations to be written by them.

In a template « and » are around the assistant's text: nothing, or the tags that say so.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

CHATML = """\
{% for message in messages %}
{% if message.role == 'assistant' %}
{{ '<|im_start|>assistant\\n' }}«{{ message.content + '<|im_end|>' }}»{{ '\\n' }}
{%- else %}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endif %}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
LLAMA = """\
{{- bos_token }}
{%- for message in messages %}
{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
{%- if message['role'] == 'assistant' %}
«{{- message['content'] | trim + '<|eot_id|>' }}»
{%- else %}
{{- message['content'] | trim + '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}
"""
# The system's message goes into the last message of the user, and no begin of an answer is written.
MISTRAL = """\
{%- if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set turns = messages[1:] %}
{%- else %}{% set system = '' %}{% set turns = messages %}{% endif %}
{{- bos_token }}
{%- for message in turns %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('user and assistant take turns') }}{% endif %}
{%- if message.role == 'user' and system and loop.index0 >= turns | length - 2 %}
{{- '[INST] ' + system + '\\n\\n' + message.content + '[/INST]' }}
{%- elif message.role == 'user' %}{{ '[INST] ' + message.content + '[/INST]' }}
{%- else %}{{ ' ' }}«{{ message.content + eos_token }}»{% endif %}
{%- endfor %}
"""  # noqa: E501
GEMMA = """\
{{ bos_token }}
{%- for message in messages %}
{%- if message.role == 'system' %}{{ raise_exception('no system messages') }}{% endif %}
{%- set role = 'model' if message.role == 'assistant' else message.role %}
{{- '<start_of_turn>' + role + '\\n' }}
{%- if role == 'model' %}«{{ message.content | trim + '<end_of_turn>' }}»
{%- else %}{{ message.content | trim + '<end_of_turn>' }}{% endif %}
{{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}
"""
ZEPHYR = """\
{% for message in messages %}
{% if message['role'] == 'assistant' %}
{{ '<|assistant|>\\n' }}«{{ message['content'] + eos_token }}»
{%- else %}
{{ '<|' + message['role'] + '|>\\n' + message['content'] + eos_token }}
{%- endif %}
{{ '\\n' }}
{%- if loop.last and add_generation_prompt %}
{{ '<|assistant|>\\n' }}
{%- endif %}
{% endfor %}
"""
# Of answers that others follow it leaves the thoughts out, and puts empty ones before the last.
THINKING = """\
{%- set state = namespace(last=0) %}
{%- for message in messages %}{% if message.role == 'user' %}{% set state.last = loop.index0 %}{% endif %}{% endfor %}
{%- for message in messages %}
{%- set content = message.content %}
{%- if message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' }}
{%- if '</think>' in content %}{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}
{%- if loop.index0 > state.last %}«{{ '<think>\\n\\n</think>\\n\\n' + content + '<|im_end|>' }}»
{%- else %}«{{ content + '<|im_end|>' }}»{% endif %}
{{- '\\n' }}
{%- else %}{{ '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
TEMPLATES = {
    "ChatML": (CHATML, None, "<|im_end|>", True),
    "Llama": (LLAMA, "<|begin_of_text|>", "<|eot_id|>", True),
    "Mistral": (MISTRAL, "<s>", "</s>", True),
    "Gemma": (GEMMA, "<bos>", "<end_of_turn>", False),
    "Zephyr": (ZEPHYR, "<s>", "</s>", True),
    "thinking": (THINKING, None, "<|im_end|>", True),
}
"""name -> template, tokens that begin and end a text, and whether it takes system messages"""


def tagged(source: str) -> str:
    """Return a template that says which text is the assistant's."""
    return source.replace("«", "{% generation %}").replace("»", "{% endgeneration %}")


def untagged(source: str) -> str:
    """Return a template that does not say so."""
    return source.replace("«", "").replace("»", "")


def messages(*texts: str, system: str | None = None) -> list[dict[str, Any]]:
    """Return messages of user and assistant in turns, behind one of the system."""
    roles = ("user", "assistant")
    told = [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]
    return told if system is None else [{"role": "system", "content": system}, *told]


CONVERSATIONS = [
    messages("Hello", "Hi."),
    messages(" Why? ", "\nBecause. ", system="Be short."),
    messages("One", "1", "Two", "2", "Two again", "2"),
    messages("Größe?", "<think>\nhm\n</think>\n\n1,85 m 😀", "Und?", "assistant", system="user"),
]


SPECIAL = (
    "</s> <s> <bos> <|im_start|> <|im_end|> <|begin_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> [INST] "
    "[/INST] <start_of_turn> <end_of_turn> <|system|> <|user|> <|assistant|>"
).split()


def save_tokenizer(path: Path, special: Sequence[str] = SPECIAL, merges: Sequence[str] = ()) -> Path:
    """Save a byte-level BPE with all bytes, special tokens and some merges, such as "H i"; return its path."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    pairs = [(first, second) for first, _, second in (merge.partition(" ") for merge in merges)]
    words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in pairs)]
    made = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, pairs))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([*special])
    made.save(str(path))
    return path
