"""PURE: the allocation of queues to the members of a group: Apache's strategies.

    Consumer("127.0.0.1:9876", "billing", "orders", strategy=allocation.ConsistentHash())

Every member computes the allocation for itself. So all members of a group, in any language, must
use the same strategy with the same settings.

See docs/protocol/consuming.md#rebalance.

May import: protocol.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar, runtime_checkable

from roquet.common.java import INT_MAX
from roquet.errors import ConfigError
from roquet.protocol.records.message import MessageQueue

__all__ = [
    "AllocationStrategy",
    "Averagely",
    "AveragelyByCircle",
    "ByConfig",
    "ByMachineRoom",
    "ConsistentHash",
    "MachineRoomNearby",
    "allocate",
    "md5_hash",
]

VIRTUAL_NODES: Final = 10

T = TypeVar("T")


@runtime_checkable
class AllocationStrategy(Protocol):
    """A rule that gives each member of a group its queues. A class of yours with both is one, too.

    `name` is the name by which logs and administrators know it.
    """

    @property
    def name(self) -> str: ...

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str], /
    ) -> Iterable[MessageQueue]:
        """The queues of the member `me`.

        Neither list is ever empty, and both have the order of Java.

        :param me: the client id of this member; it is one of `members`.
        :param queues: the queues of one topic.
        :param members: the client ids of the group's members, each once.
        """


@dataclass(frozen=True, slots=True)
class Averagely:
    """AVG, the default: each member gets neighbouring queues, the first members one more."""

    name = "AVG"

    def allocate(
        self, _group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> Sequence[MessageQueue]:
        index = members.index(me)
        size, rest = divmod(len(queues), len(members))
        start = index * size + min(index, rest)
        return queues[start : start + size + (1 if index < rest else 0)]


@dataclass(frozen=True, slots=True)
class AveragelyByCircle:
    """AVG_BY_CIRCLE: the queues are dealt to the members in turn."""

    name = "AVG_BY_CIRCLE"

    def allocate(
        self, _group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> Sequence[MessageQueue]:
        return queues[members.index(me) :: len(members)]


@dataclass(frozen=True, slots=True)
class ByConfig:
    """CONFIG: this member gets the queues that it is given here, whoever else is in the group.

    No queue is moved when a member dies. The group's retry topic has a queue, too
    (`%RETRY%group`, queue 0 of each broker): failed messages come again only at a member that
    is given it.

    :param queues: queues of any topics; each topic gets its own of them.
    :raises ConfigError: `queues` has something else.
    """

    name = "CONFIG"

    queues: Collection[MessageQueue]

    def __post_init__(self) -> None:
        object.__setattr__(self, "queues", frozenset(_all_of("queues", self.queues, MessageQueue)))

    def allocate(
        self, _group: str, _me: str, queues: Sequence[MessageQueue], _members: Sequence[str]
    ) -> Sequence[MessageQueue]:
        return [queue for queue in queues if queue in self.queues]


@dataclass(frozen=True, slots=True)
class ByMachineRoom:
    """MACHINE_ROOM: the members share the queues of brokers in given machine rooms.

    A broker tells its room in its name: `room@name`. Queues of other brokers are consumed by no
    member that uses these rooms.

    :param rooms: the rooms whose queues the members share.
    :raises ConfigError: `rooms` has something else than names.
    """

    name = "MACHINE_ROOM"

    rooms: Collection[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rooms", frozenset(_all_of("rooms", self.rooms, str)))

    def allocate(
        self, _group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> Sequence[MessageQueue]:
        index = members.index(me)
        here = [queue for queue in queues if _room_in(queue.broker_name) in self.rooms]
        size = len(here) // len(members)
        # The rest is dealt out from the end, unlike that of AVG.
        end = len(members) * size + index
        return here[index * size : (index + 1) * size] + here[end : end + 1]


@dataclass(frozen=True, slots=True)
class MachineRoomNearby:
    """MACHINE_ROOM_NEARBY: queues go to members in the broker's machine room, if there are any.

    The queues of a room without members are shared among all members.

    :param strategy: the rule by which the members share the queues of a room.
    :param room_of_broker: the machine room of a queue's broker.
    :param room_of_member: the machine room of a member, by its client id.
    :raises ConfigError: `strategy` is no strategy, or a room cannot be asked for.
    """

    strategy: AllocationStrategy
    room_of_broker: Callable[[MessageQueue], str]
    room_of_member: Callable[[str], str]

    def __post_init__(self) -> None:
        check_strategy(self.strategy)
        for name in ("room_of_broker", "room_of_member"):
            if not callable(getattr(self, name)):
                raise ConfigError(f"{name} is {getattr(self, name)!r}: give a function")

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{self.strategy.name}"

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> Sequence[MessageQueue]:
        """The queues of the member `me`.

        :raises ValueError: a queue or a member has no room.
        """
        queues_of = _by_room(queues, self.room_of_broker)
        members_of = _by_room(members, self.room_of_member)
        my_room = next(room for room, ids in members_of.items() if me in ids)
        found: list[MessageQueue] = []
        for room, in_room in queues_of.items():
            if room == my_room:
                found += self.strategy.allocate(group, me, in_room, members_of[room])
            elif room not in members_of:
                found += self.strategy.allocate(group, me, in_room, members)
        return found


def md5_hash(text: str) -> int:
    """Apache's hash of queues and members: the first 4 bytes of the MD5 digest."""
    # A lone surrogate becomes a question mark in Java's UTF-8.
    digest = hashlib.md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


@dataclass(frozen=True, slots=True)
class ConsistentHash:
    """CONSISTENT_HASH: a member that comes or goes moves few queues.

    Each member has `virtual_nodes` places on a ring. A queue goes to the member of the next place.

    :param virtual_nodes: more of them make the members' shares more alike.
    :param hash_of: the hash function of members and queues; a Java member needs the same.
    :raises ConfigError: an argument cannot be used.
    """

    name = "CONSISTENT_HASH"

    virtual_nodes: int = VIRTUAL_NODES
    hash_of: Callable[[str], int] = md5_hash

    def __post_init__(self) -> None:
        if not isinstance(self.virtual_nodes, int) or not 1 <= self.virtual_nodes <= INT_MAX:
            raise ConfigError(
                f"virtual_nodes is {self.virtual_nodes!r}: allowed are 1 to {INT_MAX}"
            )
        if not callable(self.hash_of):
            raise ConfigError(f"hash_of is {self.hash_of!r}: give a function")

    def allocate(
        self, _group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> Sequence[MessageQueue]:
        # Of two members at one place the later one has it, as in Java.
        ring = {
            self.hash_of(f"{member}-{number}"): member
            for member in members
            for number in range(self.virtual_nodes)
        }
        places = sorted(ring)

        def owner(queue: MessageQueue) -> str:
            place = bisect_left(places, self.hash_of(_java_text(queue)))
            return ring[places[place % len(places)]]

        return [queue for queue in queues if owner(queue) == me]


def allocate(
    strategy: AllocationStrategy,
    group: str,
    me: str,
    queues: Iterable[MessageQueue],
    members: Iterable[str],
) -> frozenset[MessageQueue]:
    """The queues of member `me`; none if it is not in `members` (docs/pitfalls.md#trap-60).

    :param me: the client id of this member.
    :param queues: the queues of one topic, in any order.
    :param members: client ids as a broker lists them: in any order, perhaps repeated.
    :raises ValueError: `me` is empty, or there are no queues or no members.
    """
    queues_in_order = sorted(set(queues), key=_queue_order)
    members_in_order = sorted(set(members), key=java_order)
    for name, value in (("me", me), ("queues", queues_in_order), ("members", members_in_order)):
        if not value:
            raise ValueError(f"{name} is empty: nothing can be allocated")
    if me not in members_in_order:
        return frozenset()
    found = strategy.allocate(group, me, queues_in_order, members_in_order)
    return frozenset(found).intersection(queues_in_order)


def check_strategy(strategy: object) -> None:
    """Check the argument `strategy` of a consumer.

    :raises ConfigError: it is no strategy.
    """
    # A class has the attributes of its instances.
    if isinstance(strategy, type) or not isinstance(strategy, AllocationStrategy):
        raise ConfigError(
            f"strategy is {strategy!r}: give an object with `name` and `allocate`, for example "
            "roquet.allocation.ConsistentHash()"
        )


def java_order(text: str) -> bytes:
    """A sort key for Java's order of strings, by UTF-16 units (docs/pitfalls.md#trap-58)."""
    return text.encode("utf-16-be", "surrogatepass")


def _queue_order(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    return java_order(queue.topic), java_order(queue.broker_name), queue.queue_id


def _java_text(queue: MessageQueue) -> str:
    """The text of a queue that Java's members hash."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )


def _room_in(broker_name: str) -> str | None:
    """The room in `room@name`; None if the name has another form."""
    parts = broker_name.split("@")
    while len(parts) > 1 and not parts[-1]:  # Java's split leaves out empty parts at the end.
        parts.pop()
    return parts[0] if len(parts) == 2 else None


def _by_room(things: Iterable[T], room_of: Callable[[T], str]) -> dict[str, list[T]]:
    by_room: dict[str, list[T]] = {}
    for thing in things:
        room = room_of(thing)
        if not room:
            raise ValueError(f"no machine room is known for {thing}")
        by_room.setdefault(room, []).append(thing)
    return by_room


def _all_of(name: str, values: object, kind: type[T]) -> Iterable[T]:
    # A text is a collection of texts, too.
    if isinstance(values, Collection) and not isinstance(values, str):
        wrong = [value for value in values if not isinstance(value, kind)]
        if not wrong:
            return values
        raise ConfigError(f"{name} has {wrong[0]!r}: give only {kind.__name__}")
    raise ConfigError(f"{name} is {values!r}: give a set or list of {kind.__name__}")
