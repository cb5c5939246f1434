"""PURE: (members, queues) -> mine.

Every member of a group computes the same division for itself, so all must order members and queues alike, and all
must use the same strategy.

See docs/protocol/consuming.md#rebalance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from roquet.protocol.records.message import MessageQueue

Strategy: TypeAlias = Callable[[int, int, int], Sequence[int]]
"""Number of queues, number of members, own place among them -> the places of the own queues."""


def average(queues: int, members: int, me: int) -> Sequence[int]:
    """AVG, Apache's default: neighbouring queues, the first members take one more where it does not come out even."""
    size, rest = divmod(queues, members)
    start = me * size + min(me, rest)
    return range(start, start + size + (1 if me < rest else 0))


def average_by_circle(queues: int, members: int, me: int) -> Sequence[int]:
    """AVG_BY_CIRCLE: dealt out like cards."""
    return range(me, queues, members)


def allocate(
    strategy: Strategy, queues: Sequence[MessageQueue], members: Sequence[str], me: str
) -> frozenset[MessageQueue]:
    """The queues that `me` is to consume; none when the broker does not list it.

    Never take all then: docs/pitfalls.md#trap-60.

    :param members: client ids as a broker lists them, in any order, maybe twice.
    """
    in_order = sorted(set(members), key=java_order)
    if me not in in_order:
        return frozenset()
    ordered_queues = sorted(queues)
    return frozenset(
        ordered_queues[place]
        for place in strategy(len(ordered_queues), len(in_order), in_order.index(me))
    )


def java_order(text: str) -> bytes:
    """A sort key that orders as Java orders strings: by UTF-16 units (docs/pitfalls.md#trap-58)."""
    return text.encode("utf-16-be", "surrogatepass")
