"""Tag filters of subscriptions.

See docs/protocol/json.md#subscriptions and docs/protocol/messages.md#tag-code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Protocol

from roquet.protocol.records.message import tag_code

ALL: Final = "*"
TAG: Final = "TAG"
SQL92: Final = "SQL92"
CODE_MIN: Final = -0x80000000
EXPRESSION_SIZE_MAX: Final = 8 * 1024
"""Characters of an expression (tags or SQL92) that a broker accepts; Apache's has no limit."""
_CACHED_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class Stages:
    """The tests that a broker applies to each message, in this order. None: all messages pass.

    First `by_code` with the tag code of the queue entry, or, if the entry has filter bits in its
    extension unit, `by_filter_bits` with the store time in ms and the bits. Then `by_record` with
    the stored record.
    """

    by_code: Callable[[int], bool] | None = None
    by_filter_bits: Callable[[int, bytes], bool] | None = None
    by_record: Callable[[bytes | bytearray], bool] | None = None
    cost: int = 1
    """Time per message, in units of a usual one. A fetch tests fewer messages if it is high."""


class Filter(Protocol):
    """The filter of a subscription, of any expression type."""

    @property
    def stages(self) -> Stages | None:
        """None: all messages pass."""


@dataclass(frozen=True, slots=True)
class TagFilter:
    """A tag expression: `*`, or tags joined by `||`.

    A broker compares tag codes (`codes`, hashes that may collide), a client the text (`tags`). If
    both are empty, all messages pass.
    """

    expression: str = ALL
    tags: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()
    stages: Stages | None = field(init=False, repr=False, compare=False)
    """A broker tests only the tag codes of queue entries."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", Stages(by_code=self.wants_code) if self.codes else None)

    @classmethod
    def parse(cls, expression: str | None) -> TagFilter:
        """Parse an expression: None, blank or `*` is `EVERYTHING`, else tags joined by `||`.

        Tags are trimmed, empty ones dropped.
        """
        if expression is None or expression.strip() in ("", ALL):
            return EVERYTHING
        tags = frozenset(tag.strip() for tag in expression.split("||") if tag.strip())
        return cls(expression, tags, frozenset(map(tag_code, tags)))

    def wants_code(self, code: int) -> bool:
        """The broker's test of a consume queue entry: its low 32 bits, signed, are one of `codes`.

        A code below `CODE_MIN` means that the tag code is not known here: then the client decides.
        """
        codes = self.codes
        return (
            not codes or code < CODE_MIN or ((code + 0x80000000) & 0xFFFFFFFF) - 0x80000000 in codes
        )

    def wants_tag(self, tag: str | None) -> bool:
        """The client's test, exact."""
        return not self.tags or tag in self.tags


EVERYTHING: Final = TagFilter()


@lru_cache(_CACHED_MAX)
def tag_filter(expression: str | None) -> TagFilter:
    """As `TagFilter.parse`, with a cache: clients send the same expression with each pull."""
    return TagFilter.parse(expression)
