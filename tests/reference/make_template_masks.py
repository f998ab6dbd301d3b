"""Record the assistant masks that transformers makes with TRL's chat templates for training.

    python -m tests.reference.make_template_masks

Needs transformers, tokenizers and jinja2. It imports nothing of cstool.
"""

import tempfile
from pathlib import Path

import transformers
from jinja2 import TemplateError

from tests.reference.recorded_file import as_text
from tests.reference.template_cases import CONVERSATIONS, PLACE, TEMPLATES, marked, messages, write_tokenizer


def text_of(template: str, conversation: str, folder: Path) -> str | None:
    """Text of a conversation with its mask; None where the template refuses it."""
    write_tokenizer(folder, template)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = TEMPLATES[template].read_text(encoding="utf-8")
    try:
        found = tokenizer.apply_chat_template(
            messages(conversation), tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
    except TemplateError:
        return None
    return marked(found["input_ids"], found["assistant_masks"], tokenizer)


def main() -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as folder:
        texts = {
            template: {name: text_of(template, name, Path(folder) / template) for name in CONVERSATIONS}
            for template in TEMPLATES
        }
    PLACE.write_text(as_text({"made with": f"TRL 1.16.0, transformers {transformers.__version__}", "texts": texts}))


if __name__ == "__main__":
    main()
