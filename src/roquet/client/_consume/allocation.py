"""PURE: the allocation of queues to the members of a group.

Every member computes the allocation for itself. So all members must sort members and queues in the
same way, and use the same strategy.

See docs/protocol/consuming.md#rebalance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from roquet.protocol.records.message import MessageQueue

Strategy: TypeAlias = Callable[[int, int, int], Sequence[int]]
"""Number of queues, number of members, index of a member -> the indexes of that member's queues."""


def average(queues: int, members: int, me: int) -> Sequence[int]:
    """AVG, Apache's default: each member gets neighbouring queues, the first members one more."""
    size, rest = divmod(queues, members)
    start = me * size + min(me, rest)
    return range(start, start + size + (1 if me < rest else 0))


def average_by_circle(queues: int, members: int, me: int) -> Sequence[int]:
    """AVG_BY_CIRCLE: queue i goes to member i modulo the number of members."""
    return range(me, queues, members)


def allocate(
    strategy: Strategy, queues: Sequence[MessageQueue], members: Sequence[str], me: str
) -> frozenset[MessageQueue]:
    """The queues of member `me`; none if it is not in `members` (docs/pitfalls.md#trap-60).

    :param members: client ids as a broker lists them: in any order, perhaps repeated.
    :param me: the client id of this member.
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
    """A sort key for Java's order of strings, by UTF-16 units (docs/pitfalls.md#trap-58)."""
    return text.encode("utf-16-be", "surrogatepass")
