"""Pages of a cache: which are free, which belong to sequences, and which are kept for sequences that begin alike.

A full page is known by its tokens and the page before it, so by all tokens up to its end. Pages that no sequence has
any more are kept in case that another one begins with the same tokens, until their room is needed: the one that was
left first goes first.

Source: Kwon et al., "Efficient memory management for large language model serving with PagedAttention", 2023, section
4.2 (pages); Zheng et al., "SGLang: efficient execution of structured language model programs", 2024, section 3 (reuse
of the tokens that sequences have in common).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

PAGE_TOKENS = 128
"""tokens of a page: the block that the vendor's inference service shares among prompts"""


@dataclass(frozen=True)
class Kept:
    """A full page that another sequence may begin with."""

    page: int
    number: int
    """of its tokens and all before them: no other beginning ever has it"""


@dataclass
class PagePool:
    """Bookkeeping of so many pages; their contents are elsewhere."""

    pages: int
    _free: list[int] = field(init=False)
    _users: list[int] = field(init=False)
    _idle: OrderedDict[int, None] = field(init=False, default_factory=OrderedDict)
    """kept pages without a user, the one that was left first in front"""
    _kept: dict[tuple[int, bytes], Kept] = field(init=False, default_factory=dict)
    """by the number before, and the tokens"""
    _keys: dict[int, tuple[int, bytes]] = field(init=False, default_factory=dict)
    """by page"""
    _next: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._free = list(range(self.pages))[::-1]
        self._users = [0] * self.pages

    @property
    def available(self) -> int:
        """Number of pages that can be taken."""
        return len(self._free) + len(self._idle)

    @property
    def idle(self) -> int:
        """Number of kept pages that no sequence has."""
        return len(self._idle)

    def take(self) -> int | None:
        """Take a page; None where all belong to sequences."""
        if self._free:
            page = self._free.pop()
        elif self._idle:
            page, _ = self._idle.popitem(last=False)
            del self._kept[self._keys.pop(page)]
        else:
            return None
        self._users[page] = 1
        return page

    def share(self, page: int) -> None:
        """Take a page that a sequence has, or that is kept."""
        self._idle.pop(page, None)
        self._users[page] += 1

    def release(self, page: int) -> None:
        """Give a page back."""
        self._users[page] -= 1
        if self._users[page]:
            return
        if page in self._keys:
            self._idle[page] = None
        else:
            self._free.append(page)

    def find(self, before: int, tokens: bytes) -> Kept | None:
        """The kept page with these tokens behind those of that number."""
        return self._kept.get((before, tokens))

    def keep(self, page: int, before: int, tokens: bytes) -> Kept:
        """Keep a full page that is in use; where another one has the same tokens, that one stays the kept one.

        Args:
            before: number of the tokens before it; negative at the begin of a text
            tokens: of the page
        """
        key = before, tokens
        if (found := self._kept.get(key)) is None:
            found = self._kept[key] = Kept(page, self._next)
            self._keys[page] = key
            self._next += 1
        return found
