"""What every store must do, whatever is behind it: inherit `StoreContract` and override `make_store`."""

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine
from numpy.typing import NDArray

from cstool.training.store import Store
from tests.contract.refusal import refusal
from tests.examples import examples

StoreMaker = Callable[[], Store]


class StoreContract:
    """Specification of a store; every test asks `make_store` for an empty one."""

    @pytest.fixture
    def make_store(self) -> StoreMaker:
        raise NotImplementedError

    @pytest.fixture
    def store(self, make_store: StoreMaker) -> Any:
        store = make_store()
        yield store
        store.close()

    def test_arrays_are_float32_unless_asked_otherwise_their_rows_contiguous_and_writable(self, store: Store) -> None:
        store.create("a", [np.int64(4), 3, 2])
        assert (store.shape("a"), type(store.shape("a")[0]), store.dtype("a")) == ((4, 3, 2), int, "float32")
        rows = store.borrow("a", 1, 3)
        assert (rows.shape, rows.dtype) == ((2, 3, 2), np.float32)
        assert (rows.flags.c_contiguous, rows.flags.writeable) == (True, True)

    def test_the_same_rows_are_borrowed_twice_and_given_back_twice(self, store: Store) -> None:
        store.create("a", (4,))
        for rows in [store.borrow("a", 0, 2), store.borrow("a", 0, 2)]:
            store.give_back("a", 0, 2, rows, changed=False)
        with refusal(ValueError, "a: rows 0:2 must be given back as they were borrowed, they were not"):
            store.give_back("a", 0, 2, rows, changed=False)

    def test_an_array_is_created_once_with_dimensions_none_negative(self, store: Store) -> None:
        store.create("a", (4,))
        with refusal(ValueError, "a: an array must be created once, it exists already"):
            store.create("a", (4,))
        for shape in ((), (2, -1)):
            with refusal(ValueError, f"b: a shape must have one or more dimensions, none negative, got {shape}"):
                store.create("b", shape)

    def test_what_is_read_is_a_copy(self, store: Store) -> None:
        store.create("a", (2,))
        out = np.empty(2, np.float32)
        store.read("a", 0, out)
        out[:] = 7
        assert store.borrow("a", 0, 2).tolist() == [0, 0]

    @pytest.mark.parametrize("ask", ["read", "write"])
    def test_copied_rows_are_like_the_array_and_lie_in_it(self, store: Store, ask: str) -> None:
        store.create("a", (4, 2))
        for rows, got in (
            (np.zeros((2, 3), np.float32), "(2, 3) float32"),
            (np.zeros((2, 2), np.int32), "(2, 2) int32"),
            (np.zeros((2, 2), np.float32).T[:, ::-1], "(2, 2) float32"),
        ):
            with refusal(ValueError, f"a: must be rows of (4, 2) float32, C-contiguous, got {got}"):
                getattr(store, ask)("a", 0, rows)
        with refusal(ValueError, "a: rows must satisfy 0 <= start <= stop <= 4, got 3:5"):
            getattr(store, ask)("a", 3, np.zeros((2, 2), np.float32))

    def test_rows_change_in_pieces_that_cover_them_in_order(self, store: Store) -> None:
        """Wide rows: a store that changes them in tiles needs several."""
        store.create("a", (9, 2**18))
        pieces = []

        def change(arrays: list[NDArray[Any]], first: int, last: int) -> None:
            pieces.append((first, last))
            arrays[0] += np.arange(first, last, dtype=np.float32)[:, None]

        store.rewrite(["a"], 2, 8, change)
        assert [pieces[0][0], *(last for _, last in pieces)] == [2, *(first for first, _ in pieces[1:]), 8]
        out = np.empty((9, 2**18), np.float32)
        store.read("a", 0, out)
        assert out.max(axis=1).tolist() == [0, 0, 2, 3, 4, 5, 6, 7, 0]

    def test_a_change_that_fails_says_why(self, store: Store) -> None:
        store.create("a", (4,))

        def change(arrays: list[NDArray[Any]], first: int, last: int) -> None:
            raise ZeroDivisionError("not today")

        with refusal(ZeroDivisionError, "not today"):
            store.rewrite(["a"], 0, 4, change)
        assert len(store.borrow("a", 0, 4)) == 4

    @pytest.mark.parametrize("apart", [0, 1, 4])
    def test_what_is_expected_is_borrowed_in_any_order(self, store: Store, apart: int) -> None:
        store.create("a", (6, 2))
        store.write("a", 0, np.arange(12, dtype=np.float32).reshape(6, 2))
        spans = [(0, 2), (2, 3), (3, 6), (2, 3), (0, 2)]
        store.expect([("a", *span) for span in spans], apart)
        for start, stop in [*spans, (3, 6), (0, 2), (0, 6), (2, 3)]:
            rows = store.borrow("a", start, stop)
            assert rows.reshape(-1).tolist() == list(range(2 * start, 2 * stop))
            store.give_back("a", start, stop, rows, changed=False)

    def test_an_unknown_name_is_refused(self, store: Store) -> None:
        rows = np.zeros(1, np.float32)
        for ask in (
            lambda: store.shape("a"),
            lambda: store.dtype("a"),
            lambda: store.borrow("a", 0, 1),
            lambda: store.give_back("a", 0, 1, rows, changed=True),
            lambda: store.read("a", 0, rows),
            lambda: store.write("a", 0, rows),
            lambda: store.rewrite(["a"], 0, 1, lambda arrays, first, last: None),
        ):
            with refusal(KeyError, "a: there is no such array in the store"):
                ask()

    def test_rows_lie_in_the_array_and_those_that_change_in_all_arrays(self, store: Store) -> None:
        store.create("a", (4, 2))
        store.create("b", (3, 2))
        for start, stop in ((-1, 2), (0, 5), (3, 2)):
            with refusal(ValueError, f"a: rows must satisfy 0 <= start <= stop <= 4, got {start}:{stop}"):
                store.borrow("a", start, stop)
        with refusal(ValueError, "b: rows must satisfy 0 <= start <= stop <= 3, got 1:4"):
            store.rewrite(["a"], 1, 4, lambda arrays, first, last: None, ["b"])

    @pytest.mark.parametrize("what", ["nothing", "other rows", "a copy"])
    def test_what_was_not_borrowed_cannot_be_given_back(self, store: Store, what: str) -> None:
        store.create("a", (4,))
        rows = np.zeros(2, np.float32) if what == "nothing" else store.borrow("a", 0, 2)
        start, given = (2 if what == "other rows" else 0), (rows.copy() if what == "a copy" else rows)
        message = f"a: rows {start}:{start + 2} must be given back as they were borrowed, they were not"
        with refusal(ValueError, message):
            store.give_back("a", start, start + 2, given, changed=True)

    def test_a_closed_store_is_refused_and_may_be_closed_again(self, store: Store) -> None:
        store.create("a", (4,))
        store.close()
        store.close()
        with refusal(ValueError, "the store must be open, it was closed"):
            store.borrow("a", 0, 1)

    def test_a_store_is_a_dict_of_arrays(self, make_store: StoreMaker) -> None:
        class Machine(StoreMachine):
            maker = staticmethod(make_store)

        run_machine(Machine, settings=examples(30, stateful_step_count=25))


Loan = tuple[str, int, int, NDArray[Any]]


class StoreMachine(RuleBasedStateMachine):
    """Any sequence of operations leaves a store equal to a dict of arrays."""

    maker: StoreMaker
    loans = Bundle("loans")

    @initialize()
    def open(self) -> None:
        self.store = self.maker()
        self.twin: dict[str, NDArray[Any]] = {}
        self.out: list[tuple[str, int, int]] = []

    @rule(
        shape=st.lists(st.integers(0, 5), min_size=1, max_size=3),
        dtype=st.sampled_from(["float32", "float16", "int64", "uint8"]),
        scratch=st.booleans(),
    )
    def create(self, shape: list[int], dtype: str, scratch: bool) -> None:
        name = f"array.{len(self.twin)}"
        self.store.create(name, shape, dtype, scratch=scratch)
        self.twin[name] = np.zeros(shape, dtype)

    @rule(target=loans, data=st.data(), fresh=st.booleans())
    def borrow(self, data: st.DataObject, fresh: bool) -> Any:
        if not self.free():
            return ("", 0, 0, np.zeros(0))
        name, start, stop = self.draw_rows(data)
        rows = self.store.borrow(name, start, stop, fresh=fresh)
        if fresh:
            rows[...] = 201
            self.twin[name][start:stop] = 201
            self.store.give_back(name, start, stop, rows, changed=True)
            rows = self.store.borrow(name, start, stop)
        assert rows.tobytes() == self.twin[name][start:stop].tobytes()
        self.out.append((name, start, stop))
        return (name, start, stop, rows)

    @rule(data=st.data(), value=st.integers(0, 200))
    def write(self, data: st.DataObject, value: int) -> None:
        if self.free():
            name, start, stop = self.draw_rows(data)
            self.twin[name][start:stop] = value
            self.store.write(name, start, self.twin[name][start:stop].copy())

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        if self.free():
            name, start, stop = self.draw_rows(data)
            out = np.full_like(self.twin[name][start:stop], 99)
            self.store.read(name, start, out)
            assert out.tobytes() == self.twin[name][start:stop].tobytes()

    @rule(data=st.data())
    def rewrite(self, data: st.DataObject) -> None:
        """Add to each row of some arrays the greatest number of the row of others."""
        if not self.free():
            return
        name, start, stop = self.draw_rows(data)
        alike = [other for other in self.free() if len(self.twin[other]) == len(self.twin[name])]
        chosen = data.draw(st.lists(st.sampled_from(alike), min_size=1, unique=True))
        count = data.draw(st.integers(1, len(chosen)))

        def change(arrays: list[NDArray[Any]], first: int, last: int) -> None:
            for array in arrays[:count]:
                for other in arrays[count:]:
                    greatest = other.max(axis=tuple(range(1, other.ndim)), initial=0)
                    array += greatest.astype(array.dtype).reshape(-1, *[1] * (array.ndim - 1))
                array += 1

        self.store.rewrite(chosen[:count], start, stop, change, chosen[count:])
        change([self.twin[name][start:stop] for name in chosen], start, stop)

    @rule(data=st.data(), apart=st.integers(0, 3))
    def expect(self, data: st.DataObject, apart: int) -> None:
        if self.twin:
            names = data.draw(st.lists(st.sampled_from(list(self.twin)), max_size=6))
            self.store.expect([(name, 0, len(self.twin[name])) for name in names], apart)

    def free(self) -> list[str]:
        """Return the arrays of which nothing is out."""
        return [name for name in self.twin if not any(name == loan[0] for loan in self.out)]

    def draw_rows(self, data: st.DataObject) -> tuple[str, int, int]:
        name = data.draw(st.sampled_from(self.free()))
        start = data.draw(st.integers(0, len(self.twin[name])))
        return name, start, data.draw(st.integers(start, len(self.twin[name])))

    @rule(loan=consumes(loans), value=st.integers(0, 200), changed=st.booleans())
    def give_back(self, loan: Loan, value: int, changed: bool) -> None:
        name, start, stop, rows = loan
        if not name:
            return
        if changed:
            rows[...] = value
            self.twin[name][start:stop] = value
        self.store.give_back(name, start, stop, rows, changed=changed)
        self.out.remove((name, start, stop))

    @invariant()
    def equals_its_twin(self) -> None:
        assert self.store.names() == list(self.twin)
        for name, array in self.twin.items():
            assert (self.store.shape(name), self.store.dtype(name)) == (array.shape, array.dtype.name)
            if any(name == loan[0] for loan in self.out):
                continue
            rows = self.store.borrow(name, 0, len(array))
            assert rows.tobytes() == array.tobytes()
            self.store.give_back(name, 0, len(array), rows, changed=False)

    def teardown(self) -> None:
        self.store.close()
