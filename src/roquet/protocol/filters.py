"""Which messages a subscription wants: tag expressions (protocol.md 4.2, 5.6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from roquet.protocol.message import tag_code

ALL: Final = "*"
TAG: Final = "TAG"
SQL92: Final = "SQL92"
CODE_MIN: Final = -0x80000000


@dataclass(frozen=True, slots=True)
class TagFilter:
    """A tag expression: `*`, or tags joined by `||`.

    A broker compares codes (`codes`, hashes that may collide), a client the text (`tags`); both empty: everything.
    """

    expression: str = ALL
    tags: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()

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
        return not codes or code < CODE_MIN or ((code + 0x80000000) & 0xFFFFFFFF) - 0x80000000 in codes

    def wants_tag(self, tag: str | None) -> bool:
        """The client's test, exact."""
        return not self.tags or tag in self.tags


EVERYTHING: Final = TagFilter()
