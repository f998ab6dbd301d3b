"""Gradients on their way in: complete once every op that uses the weight has sent that of every grain."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from cstool.ir import Panel
from cstool.kernels.payload import Payload, add_to_dense
from cstool.machine.buffers import BufferPool
from cstool.machine.memoryx.arrays import ModelArrays
from cstool.machine.memoryx.dropconnect import Draw
from cstool.machine.memoryx.waiting import Room, WaitingGradients

Array = np.ndarray[Any, Any]


class ArrivingGradients:
    """Puts the sums that ops send together to the gradient of a panel.

    Args:
        arrays: of the model
        buffers: where buffers come from and go
        room: for dense sums that wait for those of the weight's other ops
        waiting: where these wait
    """

    def __init__(self, arrays: ModelArrays, buffers: BufferPool, room: Room, waiting: WaitingGradients) -> None:
        self._arrays, self._buffers, self._room, self._waiting = arrays, buffers, room, waiting
        graph = arrays.graph
        self.uses = {name: [op.name for op in reversed(graph.ops) if name in op.weights] for name in graph.weights}
        """ops that send gradients of a weight, in the order in which their sums are added"""
        self._arrived: dict[Panel, dict[str, Payload | None]] = {}
        """sums of panels that other ops use, too; None for one that waits with the others"""
        self._lock = threading.Lock()

    def add(self, panel: Panel, op: str, payload: Payload, draw: Draw | None) -> Array | None:
        """Take the sum of one op, with its buffer; give the gradient of the panel once it is complete, else None.

        Of a sparse weight it has the numbers of the non-zeros, or all where RigL asks for them.
        """
        arrived = self._complete(panel, op, payload)
        if arrived is None:
            return None
        sums = [arrived[use] for use in self.uses[panel.weight]]
        gradient, *others = [self._waiting.fetch(panel) if found is None else found for found in sums]
        if panel.weight in self._arrays.dropped and draw is not None and isinstance(gradient, np.ndarray):
            numbers, gradient = gradient, self._arrays.dropped[panel.weight].gradient(panel, gradient, draw)
            self._buffers.give_back(numbers)
        if not isinstance(gradient, np.ndarray):
            rows, gradient = gradient, self._buffers.take(panel.shape)
            gradient.fill(0)
            add_to_dense(rows, gradient)
        for other in others:
            add_to_dense(other, gradient)
            self._buffers.give_back(other)
        return gradient

    def _complete(self, panel: Panel, op: str, payload: Payload) -> dict[str, Payload | None] | None:
        """Keep the sum of an op; give the sums of all its ops once they are there."""
        uses = self.uses[panel.weight]
        if len(uses) == 1:
            return {op: payload}
        waits = payload if isinstance(payload, np.ndarray) else None
        if waits is not None:
            self._room.take(waits.nbytes)
        with self._lock:
            arrived = self._arrived.setdefault(panel, {})
            is_complete = len(arrived) + 1 == len(uses)
            keeps = waits is not None and not is_complete and all(found is not None for found in arrived.values())
            arrived[op] = None if keeps else payload
            if is_complete:
                del self._arrived[panel]
            if waits is not None and keeps:
                self._waiting.keep(panel, self._arrays.span(panel), waits)
        if waits is not None and not keeps:
            self._room.give_back(waits.nbytes)
        return arrived if is_complete else None
