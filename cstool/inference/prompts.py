"""Prompts as tokens: the input of a decoder or an encoder."""

from cstool.foundation.errors import InferenceError
from cstool.inference.request import Generator, Request
from cstool.model.params import DecoderParams, EncoderDecoderParams
from cstool.training.data import PairTokenizer, Tokenizer, begun


def tokens_that_fit(section: Generator, wanted: int) -> int:
    """Return the most tokens, up to `wanted`, that a sequence of the decoder may have."""
    most = section.max_position_embeddings if isinstance(section, DecoderParams) else section.most_tokens[1]
    return wanted if most is None else min(wanted, most)


def encode_prompts(section: Generator, tokenizer: Tokenizer, request: Request) -> list[list[int]]:
    """Return the tokens of each prompt.

    Args:
        section: the model section of the params
        tokenizer: of its training data; of an encoder-decoder a `PairTokenizer`
        request: prompts and options

    Raises:
        InferenceError: a prompt has no token, one that the model does not know, or so many that none can follow
        DataError: the tokenizer has no tokens for a prompt
    """
    found = []
    for number, prompt in enumerate(request.prompts):
        which = f"prompt {number + 1}" if len(request.prompts) > 1 else "prompt"
        tokens = tokenizer.encode(prompt)
        if not tokens:
            raise InferenceError(f"{which}: must have at least one token, got {prompt!r}, which has none")
        if isinstance(section, DecoderParams):
            tokens = _begun(section, tokens, tokenizer, request, which)
        else:
            assert isinstance(tokenizer, PairTokenizer)
            tokens = _source(section, tokens, tokenizer, request, which)
        found.append(tokens)
    return found


def _check_known(tokens: list[int], vocab_size: int, tokenizer: Tokenizer, which: str) -> None:
    if (largest := max(tokens)) >= vocab_size:
        raise InferenceError(
            f"{which}: its tokens must be below the model's vocab_size ({vocab_size:,}), got {largest:,}",
            f"the tokenizer ({tokenizer.name}) has {tokenizer.vocab_size:,} tokens: --tokenizer names that of the "
            "training data",
        )


def _begun(section: DecoderParams, tokens: list[int], tokenizer: Tokenizer, request: Request, which: str) -> list[int]:
    """A text that the decoder goes on from."""
    begins = tokenizer.begins_texts if request.special_tokens is None else request.special_tokens
    begin = list(tokenizer.begin) if begins else []
    tokens = begun(begin, tokens)
    _check_known(tokens, section.vocab_size, tokenizer, which)
    context = section.max_position_embeddings
    if len(tokens) < context:
        return tokens
    rest = max(context - request.max_tokens, context // 2, 1)
    if not request.truncates:
        raise InferenceError(
            f"{which}: must leave room for a token in the model's context of {context:,}, got {len(tokens):,} tokens",
            f"--truncate_prompt goes on from its last {rest:,}",
        )
    return begin + tokens[len(begin) :][-max(1, rest - len(begin)) :]


def _source(
    section: EncoderDecoderParams, tokens: list[int], tokenizer: PairTokenizer, request: Request, which: str
) -> list[int]:
    """A text that the encoder reads, and its end."""
    assert tokenizer.end_of_text is not None
    ends = request.special_tokens is not False and tokenizer.ends_sources and tokens[-1] != tokenizer.end_of_text
    end = [tokenizer.end_of_text] if ends else []
    _check_known(tokens, section.vocab_sizes[0], tokenizer, which)
    most = section.most_tokens[0]
    if most is None or len(tokens) + len(end) <= most:
        return tokens + end
    if not request.truncates:
        raise InferenceError(
            f"{which}: must have at most the {most:,} tokens that the encoder takes, got {len(tokens) + len(end):,}",
            "--truncate_prompt takes its first ones",
        )
    return tokens[: most - len(end)] + end
