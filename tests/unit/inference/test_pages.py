"""Pages: each belongs to those who took it, and a kept one is found by all tokens before its end alone."""

from hypothesis import given
from hypothesis import strategies as st

from cstool.inference.pages import PagePool
from tests.examples import examples


def test_pages_are_taken_once_and_come_back():
    pool = PagePool(2)
    first, second = pool.take(), pool.take()
    assert {first, second} == {0, 1}
    assert pool.take() is None
    assert pool.available == 0
    pool.release(0)
    assert pool.take() == 0


def test_a_kept_page_is_found_until_its_room_is_needed():
    pool = PagePool(2)
    for page, before in ((pool.take(), -1), (pool.take(), 0)):
        assert page is not None
        pool.keep(page, before, b"same tokens")
    first, second = pool.find(-1, b"same tokens"), pool.find(0, b"same tokens")
    assert first is not None
    assert second is not None
    assert first != second
    assert pool.find(-2, b"same tokens") is None
    assert pool.find(-1, b"others") is None
    # The later page is left first, and goes first.
    pool.release(second.page)
    pool.release(first.page)
    assert (pool.available, pool.idle) == (2, 2)
    pool.share(first.page)
    assert pool.take() == second.page
    assert pool.find(0, b"same tokens") is None
    assert pool.take() is None


def test_of_two_pages_with_the_same_tokens_the_first_stays_the_kept_one():
    pool = PagePool(2)
    one, other = pool.take(), pool.take()
    assert one is not None
    assert other is not None
    assert pool.keep(one, -1, b"t") == pool.keep(other, -1, b"t")
    pool.release(other)
    pool.release(one)
    assert pool.idle == 1
    assert pool.available == 2


@examples(200)
@given(data=st.data())
def test_no_page_has_two_contents(data):
    """The twin knows what each sequence wrote, and looks at all of it after every change."""
    pool = PagePool(data.draw(st.integers(1, 6)))
    written: dict[int, tuple[str, ...]] = {}
    sequences: list[list[int]] = []
    texts: list[tuple[str, ...]] = []
    numbers: list[list[int]] = []
    for _ in range(data.draw(st.integers(1, 30))):
        if sequences and data.draw(st.booleans()):
            which = data.draw(st.integers(0, len(sequences) - 1))
            for page in sequences.pop(which)[::-1]:
                pool.release(page)
            texts.pop(which), numbers.pop(which)
        else:
            text = tuple(data.draw(st.lists(st.sampled_from("ab"), min_size=1, max_size=4)))
            pages, chain = [], [-1]
            for letter in text:
                found = pool.find(chain[-1], letter.encode())
                if found is not None:
                    pool.share(found.page)
                    assert written[found.page] == text[: len(pages) + 1]
                    pages.append(found.page)
                elif (page := pool.take()) is None:
                    break
                else:
                    pages.append(page)
                    written[page] = text[: len(pages)]
                    found = pool.keep(page, chain[-1], letter.encode())
                chain.append(found.number)
            sequences.append(pages), texts.append(text), numbers.append(chain)
        for pages, text in zip(sequences, texts, strict=True):
            assert all(written[page] == text[: k + 1] for k, page in enumerate(pages))
        assert pool.available == pool.pages - len({page for pages in sequences for page in pages})
