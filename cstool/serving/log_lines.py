"""Lines that a server prints for its user: about the model once it can be asked, and about each request."""

from __future__ import annotations

from collections.abc import Sequence

from cstool.foundation.words import bytes_text, counted
from cstool.model.ir import panels_of
from cstool.serving.replies import Reply
from cstool.serving.served import Served


def model_lines(served: Served) -> list[str]:
    """The size of a model, the place of its weights, and the limits of its answers.

    Of weights in memory these are the bytes that a pass reads, of keys and values the memory that requests share.
    """
    model, engine = served.model, served.engine
    weights = model.graph.weights.values()
    size = bytes_text(sum(model.stream.size_bytes(panel) for weight in weights for panel in panels_of(weight)))
    place = "in memory" if model.stream.is_resident else "that every pass reads from a file"
    first = f"{served.name}: {sum(weight.size for weight in weights):,} weights, {model.precision}, {size} {place}"
    if engine is None:
        return [first]
    return [
        first,
        f"{engine.capacity:,} tokens of context, {counted(engine.max_batch, 'answer')} side by side, "
        f"{bytes_text(engine.kv_bytes)} for keys and values of {engine.kv_tokens:,} tokens",
    ]


def request_line(method: str, path: str, status: int, seconds: float, replies: Sequence[Reply] = ()) -> str:
    """A request that is over: its status and time, and of its answers tokens, reasons of their end, and speed.

    Args:
        status: 499 where the client did not wait for the end
        seconds: from its headers to its end
        replies: its answers, if the engine made any
    """
    line = f"{method} {path[:100]} {status}, {seconds:.3f} s"
    tickets = [reply.ticket for reply in replies if reply.ticket is not None]
    if not tickets:
        return line
    prompt, cached = (
        sum(len(each.request.tokens) for each in tickets),
        sum(each.cached_tokens for each in tickets),
    )
    made = sum(len(reply.tokens) for reply in replies)
    line += f", {prompt:,} tokens in ({cached:,} from memory), {made:,} out"
    reasons = sorted({reply.finish_reason or "interrupted" for reply in replies})
    line += f", ended by {' and '.join(reasons)}"
    firsts = [each.times.first for each in tickets if each.times.first is not None]
    ends = [each.times.ended for each in tickets if each.times.ended is not None]
    if not (made and firsts):
        return line
    line += f"; first token after {min(firsts) - min(each.times.came for each in tickets):.3f} s"
    later = made - len(firsts)
    if ends and later > 0 and max(ends) > min(firsts):
        line += f", then {later / (max(ends) - min(firsts)):,.1f} tokens/s"
    return line
