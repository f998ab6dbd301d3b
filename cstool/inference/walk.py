"""One pass over the ops of a model, forward, for the rows that are asked for: new tokens, or samples of a data set.

Each op runs on all rows, with the kernels of training where these go row by row, and with the kernels of `rowwise` and
`cached_attention` elsewhere. So the results of a row do not depend on the rows beside it, to the bit.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from cstool.inference.adapters import NO_ADAPTERS, AdapterSet
from cstool.inference.memory import KvCache, SequenceMemory
from cstool.inference.pass_table import PassTable
from cstool.inference.products import Product, Products, rows_of
from cstool.inference.skipping import ZeroSkipping
from cstool.inference.team import Team
from cstool.inference.weight_stream import WeightStream
from cstool.model.ir import Graph, Op, OpKind, Panel, rules_of
from cstool.training.kernels.attention_form import Attention
from cstool.training.kernels.cached_attention import BLOCK_TOKENS, News, append, cached_attention
from cstool.training.kernels.cached_positions import add_new_positions, turn_new
from cstool.training.kernels.call import Call
from cstool.training.kernels.driver import NativeError
from cstool.training.kernels.embedding import sinusoids
from cstool.training.kernels.loss import bend_logits
from cstool.training.kernels.mixture import choose_experts, chosen_experts, expert_rows
from cstool.training.kernels.recording import NotRecordableError
from cstool.training.kernels.residual import token_factors
from cstool.training.kernels.rowwise import TOKENS, take_rows
from cstool.training.kernels.table import KERNELS
from cstool.training.machine.cluster import TABLE
from cstool.training.machine.csx import GrainSlot, Scratch
from cstool.training.machine.plan import PlannedOp, make_plan
from cstool.training.machine.stages import stages
from cstool.training.store import aligned_empty

Array = np.ndarray[Any, Any]
_RunOp = Callable[[PlannedOp, Call, News], None]

FEW_ROWS = 16
"""most rows of a pass with several tokens of a sequence that a table is written for"""
_UNCHECKED = partial(np.errstate, over="ignore", invalid="ignore")
"""an overflow is found in the logits"""
MOST_LAYOUTS = 4
"""layouts that are kept, for passes of so many different sizes"""
MOST_TABLES = 16
"""tables that are kept, likewise"""


class _Layout:
    """The memory of a pass over so many rows, and its calls."""

    def __init__(self, graph: Graph, rows: int, scratch: Scratch) -> None:
        self.plan = make_plan(graph, rows, trains=False)
        self.slot = GrainSlot(self.plan, aligned_empty(self.plan.slot_bytes), seed=0)
        for call in self.slot.calls:
            call.scratch = scratch
        pairs = zip(self.plan.ops, self.slot.calls, strict=True)
        *ops, self.head = (pair for pair in pairs if pair[0].op.kind is not OpKind.BALANCE_LOSS)
        # Linear ops of the same input are one group: query, key and value, a layer and its gate. An unread
        # output is gone with the next op, and has to be kept before.
        read = {name for op in graph.ops for name in op.inputs}
        self.groups = [list(group) for _, group in groupby(ops, partial(_group_of, read))]
        *body, head = ([*planned.vector_panels, *planned.matrix_panels] for planned, _ in [*ops, self.head])
        self.body_panels = [panel for panels in body for panel in panels]
        """panels in the order in which every pass takes them, where they stream"""
        self.head_panels: Sequence[Panel] = head
        """likewise, panels of the output layer"""
        self.steps: list[Callable[[News], None]] | None = None
        """run the groups, where weights stay; None before the first pass"""


class Walk:
    """Runs passes.

    Args:
        graph: the model for samples of one token, or of none; of an encoder, up to the op whose input is wanted
        stream: where weights come from
        team: threads
        memory: all that is kept of earlier tokens
        capacity: most tokens of a sequence; positions are below it
        adapters: that sequences choose from
        executor: of `training/machine/cluster.py`: by tables run passes over a few rows, where weights stay; the bits
            are the same
        zeros: skips zeros of activations; None for one of its own
    """

    def __init__(
        self,
        graph: Graph,
        stream: WeightStream,
        team: Team,
        memory: SequenceMemory,
        capacity: int,
        executor: str = TABLE,
        adapters: AdapterSet = NO_ADAPTERS,
        zeros: ZeroSkipping | None = None,
    ) -> None:
        self.graph = graph
        self.zeros = zeros or ZeroSkipping()
        self.stream = stream
        self.adapters = adapters
        self.team = team
        self.memory = memory
        self.capacity = capacity
        self.ids = next((name for name in (t.name for t in graph.inputs) if name.endswith("input_ids")), "")
        """the input that has tokens"""
        self._given = {tensor.name for tensor in graph.inputs}
        self.classes = next(graph.weights[op.weights[0]].shape[0] for op in reversed(graph.ops) if op.weights)
        self._scratches = [Scratch() for _ in range(team.size)]
        self._products = Products(stream, team, self._scratches[0])
        self._scores = [np.empty((BLOCK_TOKENS, memory.longest), np.float32) for _ in range(team.size)]
        self._layouts: dict[int, _Layout] = {}
        self._made_biases: dict[tuple[tuple[str, ...], Attention], Array] = {}
        """biases of attention where these are weights, by their names and the form"""
        self._readers: dict[str, list[PlannedOp]] = {}
        """ops that have a matrix for each expert, by the tensor that has the experts which rows chose"""
        self.keeps: Mapping[str, Array] = {}
        """(slots, heads, capacity, D) by tensor: where keys and values go that another walk attends to"""
        self.passes = 0
        self._tables: dict[tuple[int, int, bool], PassTable] = {}
        """by number of rows, and of rows with logits, and whether the team shares attention"""
        attentions = [op for op in graph.ops if op.kind is OpKind.ATTENTION]
        self._query_width = max((graph.tensors[op.inputs[0]].shape[-1] for op in attentions), default=0)
        self._can_have_tables = (
            executor == TABLE
            and not adapters
            and stream.is_resident
            and isinstance(memory, KvCache)
            and bool(attentions)
            and all(op.attributes["causal"] for op in attentions)
            # Which experts are taken is looked at here.
            and all(KERNELS[op.kind].native and not rules_of(op).matrix_per_expert for op in graph.ops)
        )
        self._run_op: dict[OpKind, _RunOp] = {
            OpKind.POSITION_EMBEDDING: self._position,
            OpKind.FIXED_POSITION_EMBEDDING: self._fixed_position,
            OpKind.ROTARY: self._rotary,
            OpKind.ATTENTION: self._attention,
            OpKind.TOKEN_DROPOUT: self._token_dropout,
            OpKind.ROUTER: self._router,
            OpKind.EXPERT_LINEAR: self._experts,
        }

    def run(self, inputs: Mapping[str, Array], news: News, wanted: Array, adapters: Sequence[int] = ()) -> Array:
        """Run a pass.

        Args:
            inputs: by name, (T, ...): of every row
            news: which rows are whose; not looked at in models without positions
            wanted: (n,) integers: rows whose logits are asked for
            adapters: number of the adapter of each sequence, where there are any

        Returns:
            (n, classes) float32, as the loss has them in training
        """
        if 0 < news.counts.sum() <= FEW_ROWS and news.counts.min() > 0 and inputs.keys() == {self.ids}:
            found = self._by_table(inputs[self.ids], news.slots, news.counts, news.before, wanted)
            if found is not None:
                return found
        return self._by_walk(inputs, news, wanted, adapters)

    def _by_walk(self, inputs: Mapping[str, Array], news: News, wanted: Array, adapters: Sequence[int]) -> Array:
        """Run a pass as `run` does, by the interpreter."""
        if self.adapters:
            self.adapters.choose(adapters, news)
        layout = self._pass(inputs, news, takes_head=len(wanted) > 0)
        with _UNCHECKED():
            logits = np.empty((len(wanted), self.classes), np.float32)
            if len(wanted):
                self._logits(*layout.head, wanted, logits)
            return logits

    def next(
        self, ids: Sequence[int], slots: Sequence[int], before: Sequence[int], adapters: Sequence[int] = ()
    ) -> Array:
        """Run a pass with one new token of each sequence.

        Args:
            ids: the tokens
            slots, before: see `News`
            adapters: as of `run`

        Returns:
            logits of all of them, as `run`
        """
        wanted = range(len(ids))
        if (logits := self._by_table(ids, slots, None, before, wanted)) is not None:
            return logits
        inputs = {self.ids: np.array(ids, np.int32)}
        return self._by_walk(inputs, News.of(slots, [1] * len(ids), before), np.array(wanted), adapters)

    def _by_table(
        self,
        ids: Sequence[int] | Array,
        slots: Sequence[int] | Array,
        counts: Sequence[int] | Array | None,
        before: Sequence[int] | Array,
        wanted: Sequence[int] | Array,
    ) -> Array | None:
        """Run a pass by a table; return the logits, or None where there is no table for it. See `PassTable.run`."""
        if not self._can_have_tables or self.keeps:
            return None
        keys = sum(before) + len(ids) if counts is None else int(((before + counts) * counts).sum())  # type: ignore[operator]
        try:
            logits = self._table(len(ids), len(wanted), keys).run(ids, slots, counts, before, wanted)
        except NotRecordableError:
            self._can_have_tables = False
        except NativeError:
            # The interpreter finds out which exception it was.
            pass
        else:
            self.passes += 1
            return logits
        return None

    def _table(self, tokens: int, wanted: int, keys: int) -> PassTable:
        """A table for so many tokens and logits, or a few more.

        Args:
            keys: that are attended to: by them the team shares attention or not

        Raises:
            NotRecordableError: there can be none
        """
        rows, logits_rows = _whole_tiles(tokens), _whole_tiles(wanted)
        key = rows, logits_rows, self.team.shares(2 * keys * self._query_width, by_crew=True)
        found = self._tables.pop(key, None)
        if found is None:
            if len(self._tables) >= MOST_TABLES:
                del self._tables[next(iter(self._tables))]
            layout = _Layout(self.graph, rows, self._scratches[0])
            head, call = layout.head
            x = np.empty((logits_rows, call.inputs[0].shape[1]), np.float32)
            # While calls are written down, none may be needed to make a weight.
            with self.stream.lent([*layout.body_panels, *layout.head_panels]):
                steps = [self._settled(group) for group in layout.groups]
            for planned in layout.plan.ops:
                if planned.op.kind is OpKind.ATTENTION:
                    self._biases(planned, self._form(planned, self.capacity))

            def walk(news: News, which: Array, logits: Array) -> None:
                for step in steps:
                    step(news)
                if len(which):
                    take_rows(call.inputs[0], which, x)
                    self._logits_of(head, x, logits)

            found = PassTable(layout.slot.arrays[self.ids], logits_rows, self.classes, walk, self.team, keys)
        # The one that was used last is the last to go.
        self._tables[key] = found
        return found

    def states(self, inputs: Mapping[str, Array], news: News) -> Array:
        """Run a pass up to the last op; return its input, (T, width) float32, valid until the next pass."""
        layout = self._pass(inputs, news, takes_head=False)
        return layout.head[1].inputs[0]

    def read(self, inputs: Mapping[str, Array], news: News) -> None:
        """Run all ops, to keep the activations that `keeps` names."""
        layout = self._pass(inputs, news, takes_head=True)
        with _UNCHECKED():
            self._run([layout.head], news)
            self._keep([layout.head], news)

    def _pass(self, inputs: Mapping[str, Array], news: News, *, takes_head: bool) -> _Layout:
        """Run all ops but the last."""
        self.passes += 1
        layout = self._layout(len(next(iter(inputs.values()))))
        for name, value in inputs.items():
            np.copyto(layout.slot.arrays[name], value)
        self.stream.begin_pass(layout.body_panels, layout.head_panels, takes_head=takes_head)
        with _UNCHECKED():
            if self.stream.is_resident:
                if layout.steps is None:
                    layout.steps = [self._settled(group) for group in layout.groups]
                for group, step in zip(layout.groups, layout.steps, strict=True):
                    step(news)
                    self._keep(group, news)
            else:
                for group in layout.groups:
                    self._run(group, news)
                    self._keep(group, news)
        return layout

    def _keep(self, group: Sequence[tuple[PlannedOp, Call]], news: News) -> None:
        """Append a group's outputs to the kept activations; the next ops may overwrite them."""
        for planned, call in group if self.keeps else ():
            if (target := self.keeps.get(planned.op.outputs[0])) is not None:
                append(call.outputs[0], news, target, np.arange(len(target))[:, None])

    def _layout(self, rows: int) -> _Layout:
        found = self._layouts.pop(rows, None)
        if found is None:
            if len(self._layouts) >= MOST_LAYOUTS:
                del self._layouts[next(iter(self._layouts))]
            found = _Layout(self.graph, rows, self._scratches[0])
            of_experts = [planned for planned in found.plan.ops if rules_of(planned.op).matrix_per_expert]
            self._readers = {planned.op.inputs[1]: [] for planned in of_experts}
            for planned in of_experts:
                self._readers[planned.op.inputs[1]].append(planned)
        # The one that was used last is the last to go.
        self._layouts[rows] = found
        return found

    def _run(self, group: Sequence[tuple[PlannedOp, Call]], news: News) -> None:
        """Run a group of ops, linear ones that read the same a panel at a time."""
        planned, call = group[0]
        if _is_product(planned.op):
            for linear, io in group:
                self._products.compute(linear, io.inputs[0], io.outputs[0])
            self._adapt(group)
        else:
            self._run_op.get(planned.op.kind, self._as_in_training)(planned, call, news)

    def _settled(self, group: Sequence[tuple[PlannedOp, Call]]) -> Callable[[News], None]:
        """Runner of a group of ops whose weights stay where they are: constant values are looked up once."""
        planned, call = group[0]
        panels = planned.matrix_panels
        if _is_product(planned.op):
            every = [
                product
                for linear, io in group
                for product in self._products.by_panels(linear, io.inputs[0], io.outputs[0])
            ]
            packed = self.zeros.packed(planned.op, self.graph, every) if len(group) == 1 else None
            if packed is not None:

                def skip(_news: News) -> None:
                    self.zeros.multiply(every, packed, self.team)
                    self._adapt(group)

                return skip

            def multiply(_news: News) -> None:
                self._products.multiply(every)
                self._adapt(group)

            return multiply
        if planned.op.kind in self._run_op or len(panels) > 1:
            return partial(self._run, group)
        with self.stream.lent([*panels, *planned.vector_panels]) as weights:
            call.hold(weights, panels[0] if panels else None, is_first=True, is_last=True)
        return lambda news: planned.kernel.forward(call)

    def _adapt(self, group: Sequence[tuple[PlannedOp, Call]]) -> None:
        for planned, call in group if self.adapters else ():
            self.adapters.add(planned.op, call.inputs[0], call.outputs[0])

    def _as_in_training(self, planned: PlannedOp, call: Call, _news: News) -> None:
        with self.stream.lent(planned.vector_panels) as vectors:
            for panel, is_first, is_last in stages(planned.matrix_panels):
                with self.stream.lent([] if panel is None else [panel]) as matrix:
                    call.hold([*matrix, *vectors], panel, is_first, is_last)
                    planned.kernel.forward(call)
            call.let_go()

    def _router(self, planned: PlannedOp, call: Call, _news: News) -> None:
        x, logits = call.inputs[0], call.kept["logits"]
        rows = np.empty((len(x), len(logits)), np.float32)
        self._products.compute(planned, x, rows)
        np.copyto(logits, rows.T)
        choose_experts(call)
        if self.stream.skips:
            chosen = chosen_experts(call.outputs[1])
            for reader in self._readers[planned.op.outputs[1]]:
                self.stream.want(reader.panels_of_experts(chosen))

    def _experts(self, planned: PlannedOp, call: Call, _news: News) -> None:
        with self.stream.lent(planned.vector_panels) as vectors:
            panels = planned.matrix_panels
            if self.stream.skips:
                panels = planned.panels_of_experts(chosen_experts(call.inputs[1]))
            for panel, is_first, is_last in stages(panels):
                assert panel is not None
                with self.stream.lent([panel]) as (weight,):
                    call.hold([weight, *vectors], panel, is_first, is_last)
                    x, y = expert_rows(call)
                    if len(x):
                        bias = rows_of(vectors[call.matrix], panel) if vectors else None
                        self._products.multiply([Product(x, weight, bias, y[:, panel.start : panel.stop])])
            call.let_go()

    def _position(self, planned: PlannedOp, call: Call, news: News) -> None:
        offset = planned.op.attributes.get("offset", 0)
        for panel in planned.matrix_panels:
            with self.stream.lent([panel]) as (table,):
                assert isinstance(table, np.ndarray)
                add_new_positions(call.inputs[0], news, table, panel.start - offset, call.outputs[0])

    def _fixed_position(self, _planned: PlannedOp, call: Call, news: News) -> None:
        x = call.inputs[0]
        add_new_positions(x, news, sinusoids(self.capacity, x.shape[1], x.dtype), 0, call.outputs[0])

    def _rotary(self, planned: PlannedOp, call: Call, news: News) -> None:
        turn_new(call.inputs[0], news, self.capacity, planned.op.attributes, call.outputs[0])

    def _attention(self, planned: PlannedOp, call: Call, news: News) -> None:
        q, k, v, *segments = call.inputs
        name, is_causal = planned.op.name, planned.op.attributes["causal"]
        # The segments of an encoder's tokens tell padding apart, of which there is none here.
        if segments and is_causal:
            raise ValueError(f"{name}: with a cache, all tokens of a sequence are of one segment")
        # Of a sequence all of whose tokens see each other nothing may be before this pass.
        assert is_causal or planned.op.inputs[1] in self._given or not news.before.any()
        self.memory.append(name, news, k, v)
        pages, news = self.memory.gather(name, news)
        is_given = planned.op.inputs[1] in self._given
        form = self._form(planned, pages.keys.shape[2] if is_given else self.capacity)
        biases = self._biases(planned, form)
        seen = int(((news.before + news.counts) * news.counts).sum()) * q.shape[1]
        pairs = len(news.slots) * form.heads

        def work(member: int, members: int) -> None:
            part = pairs * member // members, pairs * (member + 1) // members
            cached_attention(q, news, pages, form, biases, part, call.outputs[0], self._scores[member])

        self.team.run(work, 2 * seen)

    def _form(self, planned: PlannedOp, keys: int) -> Attention:
        return Attention.of(planned.op.attributes, self.capacity, keys)

    def _token_dropout(self, planned: PlannedOp, call: Call, news: News) -> None:
        x, ids, _ = call.inputs
        mask_token, kept = planned.op.attributes["mask_token"], planned.op.attributes["kept"]
        for rows, _ in _sequences(news):
            factors = token_factors(ids[None, rows], np.ones_like(ids[None, rows]), mask_token, kept)
            np.multiply(x[rows], factors.reshape(-1, 1).astype(x.dtype), out=call.outputs[0][rows])

    def _biases(self, planned: PlannedOp, form: Attention) -> Array:
        """Biases on the scores of an op; made once where weights stay where they are."""
        if not form.has_weights:
            return form.biases(np.dtype(np.float32), needed=False)
        found = self._made_biases.get((planned.op.weights, form))
        with self.stream.lent(planned.vector_panels) as vectors:
            if found is None or not self.stream.is_resident:
                found = form.biases(np.dtype(np.float32)).copy()
                form.add_weights([vector for vector in vectors if isinstance(vector, np.ndarray)], found)
        if self.stream.is_resident:
            self._made_biases[planned.op.weights, form] = found
        return found

    def _logits(self, planned: PlannedOp, call: Call, wanted: Array, logits: Array) -> None:
        """Compute the logits of some rows."""
        is_adapted = "low_rank" in planned.op.attributes
        read = call.inputs[:: len(call.inputs) - 1] if is_adapted else call.inputs[:1]
        x, *small = (np.ascontiguousarray(rows[wanted]) for rows in read)
        self._logits_of(planned, x, logits, *small)

    def _logits_of(self, planned: PlannedOp, x: Array, logits: Array, *small: Array) -> None:
        self._products.compute(planned, x, logits, *small)
        a = planned.op.attributes
        bend_logits(logits, a["logits_scale"], a["logits_softcap"])


class Walks:
    """Walks over a model.

    Args:
        graph: the model
        stream: where weights come from
        team: threads
        executor, adapters, zeros: as of `Walk`
    """

    def __init__(
        self,
        graph: Graph,
        stream: WeightStream,
        team: Team,
        executor: str = TABLE,
        adapters: AdapterSet = NO_ADAPTERS,
        zeros: ZeroSkipping | None = None,
    ) -> None:
        self.graph, self.stream, self.team, self.executor, self.adapters = graph, stream, team, executor, adapters
        self.zeros = zeros or ZeroSkipping()

    def walk(
        self,
        sequences: int,
        capacity: int,
        graph: Graph | None = None,
        sources: tuple[int, int] = (0, 0),
        pages: int | None = None,
    ) -> Walk:
        """A walk over so many sequences, each of up to `capacity` tokens.

        Args:
            graph: a part of the model; None for all of it
            sources: of an encoder-decoder, as of `KvCache`
            pages: of keys and values, as of `KvCache`
        """
        graph = graph or self.graph
        memory = KvCache(graph, sequences, capacity, sources, pages)
        return Walk(graph, self.stream, self.team, memory, capacity, self.executor, self.adapters, self.zeros)


def _group_of(read: Collection[str], op: tuple[PlannedOp, Call]) -> tuple[OpKind, tuple[str, ...]]:
    """Properties that ops of a group have in common."""
    found = op[0].op
    is_shared = _is_product(found) and found.outputs[0] in read
    return found.kind, found.inputs if is_shared else found.outputs


def _is_product(op: Op) -> bool:
    return op.kind is OpKind.LINEAR


def _whole_tiles(rows: int) -> int:
    """So many rows or a few more, as tables have them."""
    if rows <= 1:
        return rows
    tile = TOKENS if rows <= FEW_ROWS else 2 * TOKENS
    return -(-rows // tile) * tile


def _sequences(news: News) -> list[tuple[slice, int]]:
    """Return the rows of each sequence, and its number of earlier tokens."""
    return [
        (slice(start, start + count), before)
        for start, count, before in zip(*(part.tolist() for part in news[1:]), strict=True)
    ]
