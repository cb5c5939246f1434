"""Which messages a subscription wants: tag expressions.

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
"""Characters of an expression that a broker takes, of tags or SQL92; Apache's takes any."""
_KEPT: Final = 1024


@dataclass(frozen=True, slots=True)
class Stages:
    """What is asked of each message, in this order; None: that stage lets all of them pass.

    `by_code` is asked for the tag code of its queue entry, or in its place `by_note` for the store time in ms and the
    filter bits of the entry's note, where it has such bits; then `by_record` for the stored message itself.
    """

    by_code: Callable[[int], bool] | None = None
    by_note: Callable[[int, bytes], bool] | None = None
    by_record: Callable[[bytes | bytearray], bool] | None = None
    cost: int = 1
    """How many usual messages one takes as long as: of what costs more, one fetch looks at fewer."""


class Filter(Protocol):
    """What a subscription wants, whatever it is written in."""

    @property
    def stages(self) -> Stages | None:
        """None: everything."""


@dataclass(frozen=True, slots=True)
class TagFilter:
    """A tag expression: `*`, or tags joined by `||`.

    A broker compares codes (`codes`, hashes that may collide), a client the text (`tags`); both empty: everything.
    """

    expression: str = ALL
    tags: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()
    stages: Stages | None = field(init=False, repr=False, compare=False)
    """The codes of queue entries are all that a broker looks at."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", Stages(by_code=self.wants_code) if self.codes else None)

    @classmethod
    def parse(cls, expression: str | None) -> TagFilter:
        """Nothing, blank or `*` wants everything; else the tags between `||`, trimmed, empty ones dropped."""
        if expression is None or expression.strip() in ("", ALL):
            return EVERYTHING
        tags = frozenset(tag.strip() for tag in expression.split("||") if tag.strip())
        return cls(expression, tags, frozenset(map(tag_code, tags)))

    def wants_code(self, code: int) -> bool:
        """The broker's test of a consume queue entry: its low 32 bits, signed, are one of the codes.

        One below all codes says that the tag is not known here: then the client decides.
        """
        codes = self.codes
        return (
            not codes or code < CODE_MIN or ((code + 0x80000000) & 0xFFFFFFFF) - 0x80000000 in codes
        )

    def wants_tag(self, tag: str | None) -> bool:
        """The client's test, exact."""
        return not self.tags or tag in self.tags


EVERYTHING: Final = TagFilter()


@lru_cache(_KEPT)
def tag_filter(expression: str | None) -> TagFilter:
    """As `TagFilter.parse`, for those who bring the same expression with each pull."""
    return TagFilter.parse(expression)
