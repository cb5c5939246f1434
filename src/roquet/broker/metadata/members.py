"""PURE: the connected members of producer and consumer groups, and their subscriptions.

A channel is the connection of a member. It is only stored and compared here, so tests may use any
hashable object.

See docs/broker/consumers.md#members and docs/protocol/consuming.md#heartbeats.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Generic, TypeAlias, TypeVar

from roquet.protocol.bodies.tables import ConsumerData, Subscription

C = TypeVar("C", bound=Hashable)

Expressions: TypeAlias = Mapping[str, tuple[str, str]]
"""Topic -> type and text of the expression by which a member subscribes to it."""

_CHARACTERS_MAX: Final = 256
"""Characters of the texts of one subscription; longer texts count as several subscriptions."""
_SHOWN_MAX: Final = 300
"""Characters of an expression in a log line."""
SILENCE_MS_MAX: Final = 120_000
"""A channel is closed after this time without a heartbeat (Apache's channel expiry)."""


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    """The client at the other end of a channel; `seen_ms` is the time of its last heartbeat."""

    client_id: str
    language: str
    version: int
    address: str
    seen_ms: float


@dataclass(slots=True)
class ConsumerGroup(Generic[C]):
    """The connected consumers of one group, and the group's subscriptions.

    The last heartbeat of any member sets how the whole group consumes: its members have to agree.
    `disagreement` names two members with different subscriptions; it is empty while all agree. All
    members are compared only when a disagreement begins or may end, because thousands of members
    may leave in one turn of the event loop.
    """

    name: str
    consume_type: str
    message_model: str
    consume_from: str
    members: dict[C, ConnectedClient] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    disagreement: str = ""
    _expressions: dict[C, Expressions] = field(default_factory=dict)
    _differing: tuple[C, ...] = ()
    """The two members that `disagreement` names. It holds until one of these two changes."""
    _weights: dict[C, int] = field(default_factory=dict)

    def consume_as(self, data: ConsumerData) -> None:
        """Let the whole group consume as this heartbeat says."""
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from = data.consume_from

    def join(self, channel: C, member: ConnectedClient) -> bool:
        """Add or refresh a member. Returns whether the list of client ids changed."""
        old = self.members.get(channel)
        self.members[channel] = member
        return old is None or old.client_id != member.client_id

    def leave(self, channel: C) -> bool:
        """Remove a member. Returns whether it was one."""
        self._weights.pop(channel, None)
        self._expressions.pop(channel, None)
        if channel in self._differing:
            self._compare()
        return self.members.pop(channel, None) is not None

    def note_expressions(self, channel: C, subscriptions: Iterable[Subscription]) -> bool:
        """Store the subscriptions of one member. Returns whether there is a new disagreement."""
        expressions = _expressions_of(subscriptions)
        if self._expressions.get(channel) == expressions:
            return False
        self._expressions[channel] = self._shared(expressions)
        self._weights[channel] = _weight(self.name, expressions)
        before = self.disagreement
        if channel in self._differing if before else self._differs_from_all(channel):
            self._compare()
        return self.disagreement not in ("", before)

    def _differs_from_all(self, channel: C) -> bool:
        """Whether a member's subscriptions differ from those of the others, who agree."""
        other = next((each for each in self._expressions if each != channel), channel)
        return self._differ((channel, other))

    def _shared(self, expressions: Expressions) -> Expressions:
        """An equal object that another member has, if the first or the last member has one.

        Thousands of members with equal subscriptions then share one object, which saves memory and
        lets `_differ` compare by identity.
        """
        ends = (
            next(iter(self._expressions.values()), expressions),
            next(reversed(self._expressions.values()), expressions),
        )
        return next((known for known in ends if known == expressions), expressions)

    def weight(self, channel: C) -> int:
        """The number of subscriptions that one member counts for; 0 before its first heartbeat."""
        return self._weights.get(channel, 0)

    def _compare(self) -> None:
        """Find two members with different subscriptions and describe the difference."""
        first, other = next(filter(self._differ, pairwise(self._expressions)), (None, None))
        if first is None or other is None:
            self.disagreement, self._differing = "", ()
            return
        self._differing = first, other
        one = self._expressions[first]
        two = self._expressions[other]
        topic = min(topic for topic in one.keys() | two.keys() if one.get(topic) != two.get(topic))
        names = self.members[first].client_id, self.members[other].client_id
        self.disagreement = (
            f"{names[0]} wants {_shown(one.get(topic))} of {topic},"
            f" {names[1]} {_shown(two.get(topic))}"
        )

    def _differ(self, pair: tuple[C, C]) -> bool:
        one, two = self._expressions[pair[0]], self._expressions[pair[1]]
        return one is not two and one != two

    def subscribe(self, subscriptions: Iterable[Subscription]) -> bool:
        """Apply the subscriptions of a heartbeat. Returns whether the set of topics changed.

        Only a newer version replaces a subscription. Otherwise heartbeats that overtake each other
        would switch it back and forth (docs/pitfalls.md#trap-28).
        """
        wanted = {subscription.topic: subscription for subscription in subscriptions}
        topics_changed = wanted.keys() != self.subscriptions.keys()
        for topic in self.subscriptions.keys() - wanted.keys():
            del self.subscriptions[topic]
        for topic, subscription in wanted.items():
            old = self.subscriptions.get(topic)
            if old is None or subscription.version > old.version:
                self.subscriptions[topic] = subscription
        return topics_changed


def _expressions_of(subscriptions: Iterable[Subscription]) -> Expressions:
    return {each.topic: (each.expression_type, each.expression) for each in subscriptions}


def _weight(group: str, expressions: Expressions) -> int:
    """The number of subscriptions that a member counts for, at least 1.

    Each subscription counts 1, and 1 more for each `_CHARACTERS_MAX` characters of its texts:
    expressions alone may take 512 KiB of a heartbeat for each of 2,000 groups.
    """
    sizes = (len(topic) + len(kind) + len(text) for topic, (kind, text) in expressions.items())
    return (
        max(1, sum(1 + size // _CHARACTERS_MAX for size in sizes)) + len(group) // _CHARACTERS_MAX
    )


def _shown(expression: tuple[str, str] | None) -> str:
    return "nothing" if expression is None else f"{expression[0]} {expression[1]!r}"[:_SHOWN_MAX]


class Consumers(Generic[C]):
    """The connected consumers of all groups.

    Invariant: a group is here exactly while it has a channel. `subscription_count` is the sum of
    the weights of all members.
    """

    def __init__(self) -> None:
        self.groups: dict[str, ConsumerGroup[C]] = {}
        self.subscription_count = 0
        self._groups_of: dict[C, set[str]] = {}

    def register(self, channel: C, member: ConnectedClient, data: ConsumerData) -> bool:
        """Apply a heartbeat. Returns whether the members of the group must be notified."""
        group = self.groups.get(data.group)
        if group is None:
            group = ConsumerGroup(
                data.group, data.consume_type, data.message_model, data.consume_from
            )
            self.groups[data.group] = group
        group.consume_as(data)
        self._groups_of.setdefault(channel, set()).add(data.group)
        joined = group.join(channel, member)
        topics_changed = group.subscribe(data.subscriptions)
        return joined or topics_changed

    def disagreement(self, channel: C, data: ConsumerData) -> str:
        """The disagreement that this heartbeat caused in its group; empty: none, or none new."""
        group = self.groups[data.group]
        before = group.weight(channel)
        is_new = group.note_expressions(channel, data.subscriptions)
        self.subscription_count += group.weight(channel) - before
        return group.disagreement if is_new else ""

    def count_with(self, channel: C, consumers: Iterable[ConsumerData]) -> int:
        """An upper bound of `subscription_count` after such a heartbeat."""
        count = self.subscription_count
        for data in consumers:
            group = self.groups.get(data.group)
            count += _weight(data.group, _expressions_of(data.subscriptions))
            count -= group.weight(channel) if group is not None else 0
        return count

    def unregister(self, channel: C, group_name: str) -> bool:
        """Remove a consumer from one group. Returns whether the other members must be notified."""
        group = self.groups.get(group_name)
        if group is None:
            return False
        self.subscription_count -= group.weight(channel)
        if not group.leave(channel):
            return False
        if not group.members:
            del self.groups[group_name]
        left = self._groups_of[channel]
        left.discard(group_name)
        if not left:
            del self._groups_of[channel]
        return True

    def closed(self, channel: C) -> list[str]:
        """Remove a closed channel. Returns the groups whose members must be notified."""
        names = sorted(self._groups_of.get(channel, ()))
        return [name for name in names if self.unregister(channel, name)]

    def silent(self, now_ms: float) -> Iterator[list[C]]:
        """The channels to close, group by group. `closed` removes them when they are closed."""
        return _silent([group.members for group in self.groups.values()], now_ms)

    def groups_of(self, channel: C) -> set[str]:
        """The groups of the members on a channel."""
        return set(self._groups_of.get(channel, ()))

    def has_room(self, channel: C, group: str, count_max: int) -> bool:
        """Whether a channel is in a group, or could join without exceeding `count_max` members."""
        found = self.groups.get(group)
        return found is None or channel in found.members or len(found.members) < count_max

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """The subscription of a connected group to a topic."""
        found = self.groups.get(group)
        return None if found is None else found.subscriptions.get(topic)

    def client_ids(self, group: str) -> list[str]:
        """The client ids of a group, one per channel.

        A client that reconnected may be in the list twice (docs/pitfalls.md#trap-32).
        """
        found = self.groups.get(group)
        return [] if found is None else [member.client_id for member in found.members.values()]

    def channels(self, group: str) -> list[C]:
        found = self.groups.get(group)
        return [] if found is None else list(found.members)

    def has_unsubscribed(self, group: str, topic: str) -> bool:
        """Whether a connected group does not subscribe to a topic (it may have offsets there)."""
        found = self.groups.get(group)
        return found is not None and bool(found.subscriptions) and topic not in found.subscriptions

    def channel_of(self, group: str, client_id: str) -> C | None:
        """The channel of a member; the newer one if the client has reconnected."""
        found = self.groups.get(group)
        members = () if found is None else reversed(found.members.items())
        return next((channel for channel, member in members if member.client_id == client_id), None)


class Producers(Generic[C]):
    """The connected producers of all groups.

    Invariant: a group is here exactly while it has a channel, a client id while its latest channel
    is in a group. `count` is the sum of the weights of all members, each as of a consumer without
    subscriptions.
    """

    def __init__(self) -> None:
        self.count = 0
        self.groups: dict[str, dict[C, ConnectedClient]] = {}
        self._channel_of: dict[str, C] = {}
        self._groups_of: dict[C, set[str]] = {}

    def register(self, channel: C, member: ConnectedClient, group: str) -> None:
        """Apply a heartbeat."""
        members = self.groups.setdefault(group, {})
        if channel not in members:
            self.count += _weight(group, {})
        members[channel] = member
        self._channel_of[member.client_id] = channel
        self._groups_of.setdefault(channel, set()).add(group)

    def unregister(self, channel: C, group: str) -> None:
        """Remove a producer from one group."""
        members = self.groups.get(group, {})
        member = members.pop(channel, None)
        if member is None:
            return
        self.count -= _weight(group, {})
        if not members:
            del self.groups[group]
        left = self._groups_of[channel]
        left.discard(group)
        if not left:
            del self._groups_of[channel]
            if self._channel_of.get(member.client_id) == channel:
                del self._channel_of[member.client_id]

    def count_with(self, channel: C, groups: Iterable[str]) -> int:
        """The value of `count` after such a heartbeat."""
        new = (group for group in set(groups) if channel not in self.groups.get(group, ()))
        return self.count + sum(_weight(group, {}) for group in new)

    def closed(self, channel: C) -> None:
        """Remove a closed channel from all groups."""
        for group in sorted(self._groups_of.get(channel, ())):
            self.unregister(channel, group)

    def silent(self, now_ms: float) -> Iterator[list[C]]:
        """The channels to close, group by group; see `Consumers.silent`."""
        return _silent(list(self.groups.values()), now_ms)

    def groups_of(self, channel: C) -> set[str]:
        """The groups of the members on a channel."""
        return set(self._groups_of.get(channel, ()))

    def has_room(self, channel: C, group: str, count_max: int) -> bool:
        """Whether a channel may be in a group; see `Consumers.has_room`."""
        members = self.groups.get(group, {})
        return channel in members or len(members) < count_max

    def channel_of(self, client_id: str) -> C | None:
        """The latest channel of a client id; replies to its requests are sent there."""
        return self._channel_of.get(client_id)

    def channels(self, group: str) -> list[C]:
        return list(self.groups.get(group, ()))


def _silent(groups: Iterable[dict[C, ConnectedClient]], now_ms: float) -> Iterator[list[C]]:
    for members in groups:
        yield [
            channel
            for channel, member in members.items()
            if now_ms - member.seen_ms > SILENCE_MS_MAX
        ]
