"""Queues are shared out as Apache's clients do it, the same in every member."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.allocation import (
    AllocationStrategy,
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    allocate,
    check_strategy,
    md5_hash,
)
from roquet.errors import ConfigError
from roquet.protocol.records.message import MessageQueue

MEMBERS = ["a@1", "b@2", "c@3"]
AVG = Averagely()


def queues(count: int, broker: str = "broker-a") -> list[MessageQueue]:
    return [MessageQueue("T", broker, queue_id) for queue_id in range(count)]


def share(
    strategy: AllocationStrategy, me: str, count: int = 8, members: Sequence[str] = MEMBERS
) -> str:
    found = allocate(strategy, "G", me, queues(count), members)
    return "".join(str(queue.queue_id) for queue in sorted(found))


def of_brokers(strategy: AllocationStrategy, me: str, *brokers: str) -> list[str]:
    """The queues of brokers with two queues each that a member gets."""
    all_queues = [queue for broker in brokers for queue in queues(2, broker)]
    found = sorted(allocate(strategy, "G", me, all_queues, MEMBERS))
    return [f"{queue.broker_name}:{queue.queue_id}" for queue in found]


def test_average_gives_neighbours_and_the_first_get_one_more() -> None:
    assert [share(AVG, me) for me in MEMBERS] == ["012", "345", "67"]


def test_average_by_circle_deals_like_cards() -> None:
    assert [share(AveragelyByCircle(), me) for me in MEMBERS] == ["036", "147", "25"]


def test_members_beyond_the_number_of_queues_get_nothing() -> None:
    assert [share(AVG, me, count=2) for me in MEMBERS] == ["0", "1", ""]


def test_who_is_not_listed_gets_nothing() -> None:
    assert share(AVG, "d@4") == ""


def test_a_member_listed_twice_counts_once() -> None:
    assert share(AVG, "b@2", members=["a@1", "b@2", "a@1", "c@3"]) == "345"


def test_members_are_ordered_by_utf_16_units_as_in_java() -> None:
    astral, high = "\U0001f600@1", "￼@1"
    assert share(AVG, astral, count=2, members=[high, astral]) == "0"


def test_queues_are_ordered_by_utf_16_units_of_their_broker_then_by_number() -> None:
    astral, high = "\U0001f600", "￼"
    mixed = [MessageQueue("T", broker, number) for broker in (high, astral) for number in (10, 9)]
    assert allocate(AVG, "G", "x", mixed, ["x", "y"]) == {
        MessageQueue("T", astral, 9),
        MessageQueue("T", astral, 10),
    }


def test_a_configured_member_gets_what_it_is_given_of_each_topic() -> None:
    elsewhere = MessageQueue("other", "broker-a", 0)
    strategy = ByConfig([*queues(8)[2:4], MessageQueue("T", "gone", 0), elsewhere])
    assert share(strategy, "a@1") == share(strategy, "c@3") == "23"
    assert allocate(strategy, "G", "a@1", [elsewhere], MEMBERS) == {elsewhere}


def test_members_share_the_queues_of_their_rooms_and_the_rest_is_dealt_from_the_end() -> None:
    strategy = ByMachineRoom(["r1", "r2"])
    brokers = ("r1@a", "r2@b", "r3@c", "a", "r1@", "r1@a@b", "r1@z@@")
    assert [of_brokers(strategy, me, *brokers) for me in MEMBERS] == [
        ["r1@a:0", "r1@a:1"],
        ["r1@z@@:0", "r1@z@@:1"],
        ["r2@b:0", "r2@b:1"],
    ]
    assert [of_brokers(strategy, me, "r1@a", "r2@b") for me in MEMBERS] == [
        ["r1@a:0", "r2@b:1"],
        ["r1@a:1"],
        ["r2@b:0"],
    ]


ROOMS = {"a@1": "north", "b@2": "north", "c@3": "south"}


def nearby(inner: AllocationStrategy = AVG) -> MachineRoomNearby:
    return MachineRoomNearby(inner, lambda queue: queue.broker_name[:5], ROOMS.__getitem__)


def test_queues_stay_in_their_room_and_those_of_a_room_without_members_go_to_all() -> None:
    brokers = ("north-1", "south-1", "south-2", "west--1")
    assert [of_brokers(nearby(), me, *brokers) for me in MEMBERS] == [
        ["north-1:0", "west--1:0"],
        ["north-1:1", "west--1:1"],
        ["south-1:0", "south-1:1", "south-2:0", "south-2:1"],
    ]
    assert nearby(AveragelyByCircle()).name == "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE"


def test_a_queue_or_member_without_room_cannot_be_allocated() -> None:
    with pytest.raises(ValueError, match=r"no machine room is known for T@broker-a:0"):
        share(MachineRoomNearby(AVG, lambda _: "", ROOMS.__getitem__), "a@1")
    with pytest.raises(ValueError, match="no machine room is known for a@1"):
        share(MachineRoomNearby(AVG, lambda _: "north", lambda _: ""), "a@1")


def test_the_hash_is_apache_s() -> None:
    assert md5_hash("") == 0xD41D8CD9
    assert md5_hash("\ud800") == md5_hash("?")


def test_consistent_hashing_moves_only_the_queues_of_who_left() -> None:
    strategy = ConsistentHash()
    before = {me: allocate(strategy, "G", me, queues(60), MEMBERS) for me in MEMBERS}
    for me in MEMBERS[1:]:
        assert before[me] < allocate(strategy, "G", me, queues(60), MEMBERS[1:])


def test_a_queue_goes_to_the_virtual_node_at_its_place_or_after_it() -> None:
    places = {"a@1-0": 10, "b@2-0": 20}

    def place(text: str) -> int:
        number = text.partition("queueId=")[2].rstrip("]")
        return places.get(text, int(number or 0))

    strategy = ConsistentHash(1, place)
    assert [share(strategy, me, 30, ["a@1", "b@2"]) for me in ("a@1", "b@2")] == [
        "".join(map(str, [*range(11), *range(21, 30)])),
        "".join(map(str, range(11, 21))),
    ]


@pytest.mark.parametrize(
    ("me", "queue_count", "members", "empty"),
    [("", 1, MEMBERS, "me"), ("a@1", 0, MEMBERS, "queues"), ("a@1", 1, [], "members")],
)
def test_nothing_is_allocated_of_nothing(
    me: str, queue_count: int, members: list[str], empty: str
) -> None:
    with pytest.raises(ValueError, match=f"^{empty} is empty"):
        share(AVG, me, queue_count, members)


@pytest.mark.parametrize(
    ("make", "arguments", "words"),
    [
        (ConsistentHash, [0], "virtual_nodes is 0"),
        (ConsistentHash, [-1], "virtual_nodes is -1"),
        (ConsistentHash, ["10"], "virtual_nodes is '10'"),
        (ConsistentHash, [10, 7], "hash_of is 7"),
        (ByMachineRoom, ["r1"], "rooms is 'r1'"),
        (ByMachineRoom, [[1]], "rooms has 1: give only str"),
        (ByConfig, [None], "queues is None"),
        (ByConfig, [["T"]], "queues has 'T'"),
        (MachineRoomNearby, [None, str, str], "strategy is None"),
        (MachineRoomNearby, [AVG, None, str], "room_of_broker is None"),
        (MachineRoomNearby, [AVG, str, "north"], "room_of_member is 'north'"),
        (check_strategy, [Averagely], "strategy is <class"),
        (check_strategy, ["AVG"], "strategy is 'AVG'"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(
    make: Callable[..., object], arguments: list[Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{words}"):
        make(*arguments)


class Backwards:
    """A strategy of the application, which also names a queue that is not there."""

    name = "BACKWARDS"

    def allocate(
        self, _group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        places = range(len(queues))
        mine = places[len(members) - 1 - members.index(me) :: len(members)]
        return [*(queues[place] for place in mine), MessageQueue("T", "nowhere", 0)]


def test_an_application_may_have_a_strategy_of_its_own() -> None:
    check_strategy(Backwards())
    assert [share(Backwards(), me) for me in MEMBERS] == ["25", "147", "036"]


@pytest.mark.parametrize(
    "strategy", [AVG, AveragelyByCircle(), ByMachineRoom(["r"]), ConsistentHash(), nearby()]
)
@given(count=st.integers(1, 40), members=st.lists(st.text(min_size=1, max_size=4), min_size=1))
def test_every_queue_has_exactly_one_owner(
    strategy: AllocationStrategy, count: int, members: list[str]
) -> None:
    if isinstance(strategy, MachineRoomNearby):
        strategy = MachineRoomNearby(AVG, lambda queue: str(queue.queue_id % 3), lambda me: me[0])
    all_queues = queues(count, "r@broker")
    shares = [allocate(strategy, "G", me, all_queues, members) for me in set(members)]
    assert Counter(queue for each in shares for queue in each) == Counter(all_queues)
    if strategy.name.startswith("AVG"):
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
