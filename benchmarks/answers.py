"""Texts of a trained model of bytes against the same without a trick: skipped zeros, or drafts. The texts are equal.

Run from the project's folder, on a checkpoint of `cstool run` and a file of text::

    python -m benchmarks.answers model_dir:400 code.py --trick zeros
    python -m benchmarks.answers model_dir:400 code.py --trick lookup
    python -m benchmarks.answers model_dir:400 code.py --trick prediction --edit 20
    python -m benchmarks.answers model_dir:400 code.py --trick model --small small_dir:600

`zeros`: of a model with relu, the weights that meet zeros are not read. `lookup`: drafts are what followed the last
bytes before. `prediction`: drafts come from the request, which predicts the model's own answer with every so many bytes
changed. `model`: a smaller model of bytes makes the drafts. Each round goes on from another place of the file.
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import numpy as np

from cstool.inference.decoding import Decoder
from cstool.inference.drafts import PASS_TOKENS, Drafts, Guessed, LookedUp, NoDrafts, Predicted
from cstool.inference.sampling import Sampling
from cstool.inference.sequences import TokenRequest
from cstool.inference.skipping import ZeroSkipping
from cstool.inference.verbs.answer import open_model
from cstool.inference.walk import Walk

TRICKS = ("zeros", "lookup", "prediction", "model")


class Side:
    """A way to write texts.

    Args:
        walk: over the model
        drafts: of it
        sampling: how tokens are drawn
    """

    def __init__(self, walk: Walk, drafts: Drafts, sampling: Sampling) -> None:
        self.walk, self._drafts, self._sampling = walk, drafts, sampling
        self.accepted = self.rejected = 0
        self.seconds: list[float] = []

    def write(self, prompt: list[int], count: int, prediction: list[int]) -> list[int]:
        """Go on from a prompt by so many tokens; the time after the first is kept."""
        decoder = Decoder(self.walk, drafts=self._drafts)
        decoder.admit(TokenRequest(0, prompt, count, self._sampling, prediction=prediction))
        made: list[int] = []
        began = 0.0
        while decoder.is_busy:
            for one in decoder.step():
                made += one.tokens
                self.accepted += one.accepted
                self.rejected += one.rejected
            began = began or time.perf_counter()
        self.seconds.append(time.perf_counter() - began)
        return made


def changed(text: list[int], every: int) -> list[int]:
    """A text with a space for each so many bytes; 0 for none."""
    return [32 if every and k % every == every - 1 else byte for k, byte in enumerate(text)]


def main() -> None:
    """Run the comparison and print its report."""
    parser = argparse.ArgumentParser(description="Texts of a model of bytes, with a trick and without")
    parser.add_argument("checkpoint", help="a file or DIR:STEP")
    parser.add_argument("text", type=Path, help="file to go on from")
    parser.add_argument("--trick", choices=TRICKS, required=True)
    parser.add_argument("--small", help="checkpoint of the model that makes drafts")
    parser.add_argument(
        "--edit", type=int, default=20, help="one in so many bytes of a prediction is wrong (default: 20)"
    )
    parser.add_argument("--prompt_tokens", type=int, default=200, help="(default: 200)")
    parser.add_argument("--tokens", type=int, default=150, help="made in a round (default: 150)")
    parser.add_argument("--rounds", type=int, default=10, help="(default: 10)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 for the likeliest token (default: 0)")
    parser.add_argument("--precision", default="float32", help="of the weights (default: float32)")
    parser.add_argument("--lanes", type=int, help="threads (default: as many as cores)")
    arguments = parser.parse_args()
    if arguments.trick == "model" and arguments.small is None:
        parser.error("--trick model needs --small")
    text = list(arguments.text.read_bytes())
    capacity = arguments.prompt_tokens + arguments.tokens
    sampling = Sampling(temperature=arguments.temperature)
    places = np.random.default_rng(0).integers(0, len(text) - arguments.prompt_tokens, arguments.rounds + 1).tolist()
    with ExitStack() as stack:

        def walk(checkpoint: str, sequences: int, *, skips: bool) -> Walk:
            model = open_model(checkpoint, lanes=arguments.lanes, precision=arguments.precision, progress="none")
            stack.enter_context(model)
            model.zeros = ZeroSkipping(is_on=skips)
            return model.walk(sequences, capacity)

        drafts: Drafts = NoDrafts()
        if arguments.trick == "model":
            drafts = Guessed(walk(arguments.small, PASS_TOKENS, skips=True))
        elif arguments.trick != "zeros":
            drafts = LookedUp() if arguments.trick == "lookup" else Predicted()
        with_it = Side(walk(arguments.checkpoint, 1, skips=True), drafts, sampling)
        is_zeros = arguments.trick == "zeros"
        without = Side(walk(arguments.checkpoint, 1, skips=not is_zeros), NoDrafts(), sampling)
        different = 0
        for place in places:
            prompt = text[place : place + arguments.prompt_tokens]
            plain = without.write(prompt, arguments.tokens, [])
            predicted = changed(plain, arguments.edit) if arguments.trick == "prediction" else []
            different += with_it.write(prompt, arguments.tokens, predicted) != plain
        zeros = with_it.walk.zeros.share
    del with_it.seconds[0], without.seconds[0]
    made = arguments.tokens - 1
    print(f"{arguments.rounds} x ({arguments.prompt_tokens} + {arguments.tokens}) bytes, {arguments.precision}")
    print(f"without {arguments.trick}: {made / median(without.seconds):.1f} tokens/s")
    print(f"with {arguments.trick}: {made / median(with_it.seconds):.1f} tokens/s")
    ratios = sorted(b / a for a, b in zip(with_it.seconds, without.seconds, strict=True))
    print(f"as fast: {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    if with_it.accepted:
        print(f"drafts: {with_it.accepted} right, {with_it.rejected} wrong")
    if zeros is not None:
        print(f"zeros before the layers behind relu: {zeros:.1%}")
    print(f"texts that differ: {different} of {len(places)}")


if __name__ == "__main__":
    main()
