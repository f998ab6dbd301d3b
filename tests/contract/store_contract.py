"""What every store must do, whatever is behind it: inherit `StoreContract` and override `make_store`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from numpy.typing import NDArray

from cstool.store import Store
from tests.contract.refusal import refusal

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

    def test_a_new_store_is_empty(self, store: Store) -> None:
        assert store.names() == []

    def test_names_come_in_the_order_of_creation(self, store: Store) -> None:
        store.create("b", (1,))
        store.create("a", (1,))
        assert store.names() == ["b", "a"]

    def test_shape_and_dtype_are_those_of_creation(self, store: Store) -> None:
        store.create("a", [3, 4], "int64")
        assert (store.shape("a"), store.dtype("a")) == ((3, 4), "int64")

    def test_arrays_are_float32_unless_asked_otherwise(self, store: Store) -> None:
        store.create("a", (3,))
        assert (store.dtype("a"), store.borrow("a", 0, 3).dtype) == ("float32", np.float32)

    def test_contents_start_as_zeros(self, store: Store) -> None:
        store.create("a", (3, 4))
        assert store.borrow("a", 0, 3).tolist() == np.zeros((3, 4)).tolist()

    def test_what_was_given_back_as_changed_is_borrowed_again(self, store: Store) -> None:
        store.create("a", (4, 2))
        rows = store.borrow("a", 1, 3)
        rows[:] = [[1, 2], [3, 4]]
        store.give_back("a", 1, 3, rows, changed=True)
        assert store.borrow("a", 0, 4).tolist() == [[0, 0], [1, 2], [3, 4], [0, 0]]

    def test_arrays_do_not_share_memory(self, store: Store) -> None:
        store.create("a", (5,))
        store.create("b", (5,))
        rows = store.borrow("a", 0, 5)
        rows[:] = 7
        store.give_back("a", 0, 5, rows, changed=True)
        assert store.borrow("b", 0, 5).tolist() == [0, 0, 0, 0, 0]

    def test_borrowed_rows_are_contiguous_and_writable(self, store: Store) -> None:
        store.create("a", (4, 3, 2))
        rows = store.borrow("a", 1, 3)
        assert (rows.shape, rows.flags.c_contiguous, rows.flags.writeable) == ((2, 3, 2), True, True)

    def test_no_rows_can_be_borrowed(self, store: Store) -> None:
        store.create("a", (4, 3))
        assert store.borrow("a", 2, 2).shape == (0, 3)

    def test_an_array_without_elements_is_fine(self, store: Store) -> None:
        store.create("a", (0, 3))
        assert store.borrow("a", 0, 0).shape == (0, 3)

    def test_the_same_rows_are_borrowed_twice_and_given_back_twice(self, store: Store) -> None:
        store.create("a", (4,))
        for rows in [store.borrow("a", 0, 2), store.borrow("a", 0, 2)]:
            store.give_back("a", 0, 2, rows, changed=False)
        with refusal(ValueError, "a: rows 0:2 must be given back as they were borrowed, they were not"):
            store.give_back("a", 0, 2, rows, changed=False)

    def test_an_array_is_created_once(self, store: Store) -> None:
        store.create("a", (4,))
        with refusal(ValueError, "a: an array must be created once, it exists already"):
            store.create("a", (4,))

    @pytest.mark.parametrize("shape", [(), (2, -1)])
    def test_a_shape_has_dimensions_none_negative(self, store: Store, shape: tuple[int, ...]) -> None:
        with refusal(ValueError, f"a: a shape must have one or more dimensions, none negative, got {shape}"):
            store.create("a", shape)

    @pytest.mark.parametrize("ask", ["shape", "dtype", "borrow", "give_back"])
    def test_an_unknown_name_is_refused(self, store: Store, ask: str) -> None:
        with refusal(KeyError, "a: there is no such array in the store"):
            match ask:
                case "borrow":
                    store.borrow("a", 0, 1)
                case "give_back":
                    store.give_back("a", 0, 1, np.zeros(1, np.float32), changed=True)
                case _:
                    getattr(store, ask)("a")

    @pytest.mark.parametrize(("start", "stop"), [(-1, 2), (0, 5), (3, 2)])
    def test_rows_lie_in_the_array(self, store: Store, start: int, stop: int) -> None:
        store.create("a", (4, 2))
        with refusal(ValueError, f"a: rows must satisfy 0 <= start <= stop <= 4, got {start}:{stop}"):
            store.borrow("a", start, stop)

    def test_what_was_not_borrowed_cannot_be_given_back(self, store: Store) -> None:
        store.create("a", (4,))
        with refusal(ValueError, "a: rows 0:2 must be given back as they were borrowed, they were not"):
            store.give_back("a", 0, 2, np.zeros(2, np.float32), changed=True)

    def test_other_rows_than_the_borrowed_ones_cannot_be_given_back(self, store: Store) -> None:
        store.create("a", (4,))
        rows = store.borrow("a", 0, 2)
        with refusal(ValueError, "a: rows 2:4 must be given back as they were borrowed, they were not"):
            store.give_back("a", 2, 4, rows, changed=True)

    def test_a_copy_of_what_was_borrowed_cannot_be_given_back(self, store: Store) -> None:
        store.create("a", (4,))
        rows = store.borrow("a", 0, 2)
        with refusal(ValueError, "a: rows 0:2 must be given back as they were borrowed, they were not"):
            store.give_back("a", 0, 2, rows.copy(), changed=True)

    def test_closing_twice_is_fine(self, store: Store) -> None:
        store.close()
        store.close()

    def test_a_closed_store_is_refused(self, store: Store) -> None:
        store.create("a", (4,))
        store.close()
        with refusal(ValueError, "the store must be open, it was closed"):
            store.borrow("a", 0, 1)

    def test_a_store_is_a_dict_of_arrays(self, make_store: StoreMaker) -> None:
        class Machine(StoreMachine):
            maker = staticmethod(make_store)

        run_state_machine_as_test(Machine, settings=settings(max_examples=30, stateful_step_count=25, deadline=None))


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
    )
    def create(self, shape: list[int], dtype: str) -> None:
        name = f"array.{len(self.twin)}"
        self.store.create(name, shape, dtype)
        self.twin[name] = np.zeros(shape, dtype)

    @rule(target=loans, data=st.data())
    def borrow(self, data: st.DataObject) -> Any:
        free = [name for name in self.twin if not any(name == loan[0] for loan in self.out)]
        if not free:
            return ("", 0, 0, np.zeros(0))
        name = data.draw(st.sampled_from(free))
        start = data.draw(st.integers(0, len(self.twin[name])))
        stop = data.draw(st.integers(start, len(self.twin[name])))
        rows = self.store.borrow(name, start, stop)
        assert rows.tobytes() == self.twin[name][start:stop].tobytes()
        self.out.append((name, start, stop))
        return (name, start, stop, rows)

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
