"""Masks by TRL's chat templates for training are those that transformers makes, with the templates' tags."""

import json
import re

import pytest

from cstool.training.data.chat_templates import ChatTemplate, special_tokens
from cstool.training.data.conversation_tokens import ConversationTokens
from cstool.training.data.conversations import Conversation, Notes
from cstool.training.data.record_files import Record
from cstool.training.data.tokenizer import FileTokenizer
from tests.reference.template_cases import CONVERSATIONS, ENDS, PLACE, TEMPLATES, marked, messages, write_tokenizer

RECORDED = json.loads(PLACE.read_text())["texts"]
_TAGS = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")


@pytest.fixture
def masked(tmp_path):
    """Return the text of a conversation by a template with the learned part marked, and what was noted."""

    def mask(template, name, source):
        write_tokenizer(tmp_path, template)
        tokenizer, notes = FileTokenizer(tmp_path / "tokenizer.json"), Notes()
        special = special_tokens(tokenizer)
        written = ChatTemplate(source, template, special.named)
        tokens = ConversationTokens(tokenizer, special, written, None, "", 1000, "drop", notes)
        sample = tokens.sample(Conversation(Record("here", "here", {}), messages(name)))
        return marked(sample.tokens.tolist(), sample.learned.tolist(), tokenizer.loaded), dict(notes.counts)

    return mask


@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("template", TEMPLATES)
def test_masks_are_those_of_transformers(masked, template, name):
    source = TEMPLATES[template].read_text(encoding="utf-8")
    if RECORDED[template][name] is None:
        with pytest.raises(Exception, match="System role not supported"):
            masked(template, name, source)
        return
    assert masked(template, name, source) == (RECORDED[template][name], {})
    # Without the tags the contents are found, and the end of each turn is learned all the same.
    text, notes = masked(template, name, _TAGS.sub("", source))
    learned = re.findall(r"\[\[(.*?)\]\]", text, re.DOTALL)
    answers = [content for role, content in CONVERSATIONS[name] if role == "assistant"]
    assert len(learned) == len(answers)
    for found, answer in zip(learned, answers, strict=True):
        assert answer in found
        assert found.endswith(ENDS.get(template, "<|im_end|>"))
    assert notes == {}
