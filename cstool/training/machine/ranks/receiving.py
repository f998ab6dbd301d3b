"""SwarmX at a rank for the panels of other nodes: they arrive ahead of need, and sums of their gradients leave."""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from cstool.model.ir import Panel
from cstool.training.kernels.call import Payload, Weights
from cstool.training.kernels.sparse import SparseMatrix
from cstool.training.machine.buffers import BufferPool
from cstool.training.machine.memoryx.shards import Shards
from cstool.training.machine.ranks.link import Form, Link
from cstool.training.machine.ranks.wire import PanelSent, SumSent, pack_gradient, unpack_weights
from cstool.training.machine.recorder import LaneTape
from cstool.training.machine.swarmx import GradientTree, Node, SwarmX

Array = np.ndarray[Any, Any]


class _Arrived:
    """A panel that is here. Every lane acquires it once; lanes are told apart by their threads."""

    def __init__(self, sender: int, sent: PanelSent, arrays: Sequence[Array], weights: Weights) -> None:
        self.sender, self.sent, self.arrays, self.weights = sender, sent, arrays, weights
        self.acquired: set[int] = set()
        """threads that have acquired it"""
        self.released = 0


class ArrivingPanels:
    """The panels that are here, from their arrival until the last lane gives them back."""

    def __init__(self, link: Link) -> None:
        self.buffers = BufferPool()
        self.lanes = 1
        """number of lanes that acquire each panel"""
        self.waited_s = 0.0
        """time that lanes waited for panels [s], summed over the lanes"""
        self._link = link
        self._error: BaseException | None = None
        self._arrived: defaultdict[Panel, deque[_Arrived]] = defaultdict(deque)
        """panels that some lane has yet to acquire; a panel comes several times in a step, and may be here twice"""
        self._held: dict[tuple[int, Panel], _Arrived] = {}
        """by thread"""
        self._changed = threading.Condition()
        link.listen("panel", self._hear, self._place)
        link.on_failure(self._fail)

    def _place(self, sent: PanelSent, forms: Sequence[Form]) -> Sequence[Array]:
        room = 0 if sent.sparse is None else sent.sparse.room
        numbers = self.buffers.take(forms[0].shape, room, np.dtype(forms[0].dtype))
        return [numbers, *(form.empty() for form in forms[1:])]

    def _hear(self, sender: int, sent: PanelSent, arrays: Sequence[Array]) -> None:
        weights = unpack_weights(sent.sparse, arrays, self.buffers.take)
        with self._changed:
            self._arrived[sent.panel].append(_Arrived(sender, sent, arrays, weights))
            self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def acquire(self, panel: Panel) -> Weights:
        """Lend a panel to a lane, once it is here; the next time the lane asks, it waits for the next arrival."""
        me, began = threading.get_ident(), time.perf_counter()
        with self._changed:
            waiting = self._arrived[panel]
            self._changed.wait_for(lambda: self._error is not None or any(me not in each.acquired for each in waiting))
            if self._error is not None:
                raise self._error
            found = next(each for each in waiting if me not in each.acquired)
            found.acquired.add(me)
            if len(found.acquired) == self.lanes:
                waiting.remove(found)
            self._held[me, panel] = found
            self.waited_s += time.perf_counter() - began
            return found.weights

    def release(self, panel: Panel) -> None:
        """Give a panel back; after the last lane its buffers are free, and its sender is told so."""
        with self._changed:
            found = self._held.pop((threading.get_ident(), panel))
            found.released += 1
            if found.released < self.lanes:
                return
        for array in found.weights.made.values() if isinstance(found.weights, SparseMatrix) else ():
            self.buffers.give_back(array)
        self.buffers.give_back(found.arrays[0])
        self._link.send(found.sender, "passed", found.sent.number)


class Remote(SwarmX):
    """SwarmX for the panels of other nodes; see `SwarmX`.

    Args:
        grains: leaves of the tree
        own: the grains of this rank
        buffers: lend lanes the buffers of gradients
        shards: the panels of each node, which is at the rank of the same number
    """

    def __init__(
        self, grains: int, own: Collection[int], panels: ArrivingPanels, link: Link, buffers: BufferPool, shards: Shards
    ) -> None:
        self.buffers = buffers
        self._panels, self._link, self._shards = panels, link, shards
        self._tree = GradientTree(grains, buffers, own)

    def expect(self, stream: Sequence[Panel], apart: int, lanes: int) -> None:  # noqa: ARG002
        """See `SwarmX.expect`. The sender of panels settles their order, so nothing is announced."""
        self._panels.lanes = lanes

    def acquire(self, panel: Panel) -> Weights:
        """Lend the weights of a panel, to be read until `release`."""
        return self._panels.acquire(panel)

    def release(self, panel: Panel) -> None:
        """Give a panel back."""
        self._panels.release(panel)

    def reduce(self, panel: Panel, op: str, node: Node, payload: Payload, tape: LaneTape) -> None:
        """See `SwarmX.reduce`. A sum leaves once no grain of this rank can be added to it any more."""
        found = self._tree.add(panel, op, node, payload, tape)
        if found is None:
            return
        above, total = found
        sent = self._link.send(self._shards.node_of(panel), "sum", SumSent(panel, op, above), pack_gradient(total))
        sent.add_done_callback(lambda _: self.buffers.give_back(total))
