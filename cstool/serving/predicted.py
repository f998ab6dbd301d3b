"""Drafts for requests that predict their answer; others pay nothing for them."""

from __future__ import annotations

from collections.abc import Sequence

from cstool.inference.drafts import LookedUp
from cstool.inference.sequences import TokenSequence


class Predicted(LookedUp):
    """Drafts out of predictions, or out of the text so far where there is a prediction."""

    def propose(self, sequences: Sequence[TokenSequence]) -> None:
        """See `cstool.inference.drafts.Drafts.propose`."""
        super().propose([sequence for sequence in sequences if sequence.request.prediction])
