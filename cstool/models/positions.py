"""What positions do to attention: the frequencies of rotary embeddings, the slopes of ALiBi."""

import math

from cstool.params import DecoderParams


def rotary_frequencies(model: DecoderParams) -> tuple[tuple[float, ...], float]:
    """Return the angle per position of each pair [radians], and what the turned pairs are multiplied by.

    Source: Su et al., "RoFormer", 2021, section 3.2.2. Scalings: Chen et al., "Extending context window of large
    language models via positional interpolation", 2023 (linear); Peng et al., "YaRN", 2023, sections 3.2 to 3.4;
    Grattafiori et al., "The Llama 3 herd of models", 2024, as released (llama3).
    """
    width = model.rotary_dim
    assert width is not None
    plain = [model.rope_theta ** (-2 * i / width) for i in range(width // 2)]
    factor, extra = model.pos_scaling_factor, model.pos_scaling_extra_args
    if model.pos_scaling_type == "linear":
        return tuple(frequency / factor for frequency in plain), 1.0
    assert extra is not None and extra.original_max_position_embeddings is not None
    original = extra.original_max_position_embeddings
    if model.pos_scaling_type == "llama3":
        low, high = extra.low_freq_factor, extra.high_freq_factor
        # How many turns the original length holds decides how much of the plain frequency is kept.
        turns = [(original * frequency / (2 * math.pi) - low) / (high - low) for frequency in plain]
        kept = [min(max(share, 0.0), 1.0) for share in turns]
        return _blend(plain, factor, kept), 1.0

    def pair_with(turns: float) -> float:
        return width * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(model.rope_theta))

    first, last = pair_with(extra.beta_fast), pair_with(extra.beta_slow)
    if extra.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, width - 1)
    span = last - first if last != first else 0.001
    ramps = [min(max((pair - first) / span, 0.0), 1.0) for pair in range(len(plain))]
    amplitude = extra.mscale_a * math.log(factor) + extra.mscale_b if factor > 1 else 1.0
    return _blend(plain, factor, [(1 - ramp) * extra.extrapolation_factor for ramp in ramps]), amplitude


def _blend(plain: list[float], factor: float, kept: list[float]) -> tuple[float, ...]:
    """Return frequencies between the stretched (kept: 0) and the plain ones (kept: 1)."""
    return tuple(
        frequency / factor * (1 - share) + frequency * share for frequency, share in zip(plain, kept, strict=True)
    )


def alibi_slopes(heads: int, scaling_factor: float) -> tuple[float, ...]:
    """Return for each head by how much a score falls per token of distance.

    For a number of heads that is no power of two, those of the next lower power, then every other one of the next
    higher. Source: Press, Smith, Lewis, "Train short, test long", 2021, section 3 and the code released with it.
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    slopes += [2 ** (-8 * (i + 1) / (2 * power)) for i in range(0, 2 * power, 2)][: heads - power]
    return tuple(slope / scaling_factor for slope in slopes)
