"""Who is connected, and when a group has to be told.

See docs/broker/consumers.md#members, docs/protocol/consuming.md#heartbeats and
docs/pitfalls.md#broker.
"""

from __future__ import annotations

import gc
import random
import re
import sys
from collections.abc import Callable
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from roquet.broker.metadata.members import SILENCE_MS_MAX, ConnectedClient, Consumers, Producers
from roquet.protocol.bodies.tables import BROADCASTING, ConsumerData, Subscription

NOW = 1_700_000_000_000


def member(client_id: str = "c", seen_ms: int = NOW) -> ConnectedClient:
    return ConnectedClient(client_id, "JAVA", 409, "10.0.0.9:555", seen_ms)


def data(group: str = "g", *subscriptions: Subscription) -> ConsumerData:
    return ConsumerData(group, subscriptions=subscriptions or (Subscription("T", version=1),))


def test_a_group_is_told_of_a_new_channel_but_not_of_a_heartbeat_that_says_the_same() -> None:
    consumers = Consumers[str]()
    assert consumers.register("x", member(), data())
    assert not consumers.register("x", member(seen_ms=NOW + 1), data())
    assert consumers.register("y", member("d"), data())
    assert consumers.client_ids("g") == ["c", "d"]
    assert consumers.channels("g") == ["x", "y"]


def test_a_channel_that_changes_its_client_id_changes_the_list() -> None:
    consumers = Consumers[str]()
    consumers.register("x", member("c"), data())
    assert consumers.register("x", member("d"), data())
    assert consumers.client_ids("g") == ["d"]


def test_a_client_that_came_back_is_listed_once_per_channel() -> None:
    consumers = Consumers[str]()
    consumers.register("x", member("c"), data())
    consumers.register("y", member("c"), data())
    assert consumers.client_ids("g") == ["c", "c"]


def test_a_group_is_told_when_its_set_of_topics_changes_not_when_an_expression_does() -> None:
    consumers = Consumers[str]()
    consumers.register("x", member(), data("g", Subscription("T", "a", 1)))
    assert not consumers.register("x", member(), data("g", Subscription("T", "b", 2)))
    assert consumers.register(
        "x", member(), data("g", Subscription("T", "b", 2), Subscription("U"))
    )
    assert consumers.register("x", member(), data("g", Subscription("U")))
    assert consumers.subscription("g", "T") is None
    assert consumers.subscription("g", "U") == Subscription("U")


def test_a_subscription_gives_way_to_a_newer_one_only() -> None:
    consumers = Consumers[str]()
    consumers.register("x", member(), data("g", Subscription("T", "new", 5)))
    consumers.register("y", member(), data("g", Subscription("T", "older", 4)))
    consumers.register("y", member(), data("g", Subscription("T", "equal", 5)))
    assert consumers.subscription("g", "T") == Subscription("T", "new", 5)
    consumers.register("y", member(), data("g", Subscription("T", "newer", 6)))
    assert consumers.subscription("g", "T") == Subscription("T", "newer", 6)


def test_the_last_heartbeat_says_how_the_group_consumes() -> None:
    consumers = Consumers[str]()
    consumers.register("x", member(), data())
    consumers.register("x", member(), ConsumerData("g", message_model=BROADCASTING))
    assert consumers.groups["g"].message_model == BROADCASTING


def test_who_leaves_is_gone_from_its_group_and_the_others_are_told() -> None:
    consumers = Consumers[str]()
    consumers.register("x", member("c"), data("g"))
    consumers.register("y", member("d"), data("g"))
    assert consumers.unregister("x", "g")
    assert not consumers.unregister("x", "g")
    assert not consumers.unregister("x", "unknown")
    assert consumers.client_ids("g") == ["d"]
    assert consumers.unregister("y", "g")
    assert "g" not in consumers.groups


def test_a_closed_channel_leaves_all_its_groups() -> None:
    consumers = Consumers[str]()
    for group in ("g", "h"):
        consumers.register("x", member(), data(group))
    consumers.register("y", member(), data("h"))
    assert consumers.closed("x") == ["g", "h"]
    assert consumers.closed("x") == []
    assert list(consumers.groups) == ["h"]


def test_silence_in_one_group_is_enough_to_be_closed() -> None:
    consumers = Consumers[str]()
    consumers.register("x", member(seen_ms=NOW), data("g"))
    consumers.register("x", member(seen_ms=NOW + 60_000), data("h"))
    assert list(chain(*consumers.silent(NOW + SILENCE_MS_MAX))) == []
    assert list(chain(*consumers.silent(NOW + SILENCE_MS_MAX + 1))) == ["x"]
    assert consumers.client_ids("g") == ["c"], "the end of the channel takes it out, not the scan"


def test_nobody_is_in_an_unknown_group() -> None:
    consumers = Consumers[str]()
    assert (
        consumers.client_ids("g"),
        consumers.channels("g"),
        consumers.subscription("g", "T"),
    ) == ([], [], None)


def test_a_producer_is_reached_by_its_client_id_as_long_as_its_latest_channel_produces() -> None:
    producers = Producers[str]()
    producers.register("x", member("c"), "p")
    producers.register("x", member("c"), "q")
    producers.register("y", member("c"), "p")
    assert producers.channel_of("c") == "y"
    producers.closed("x")
    assert producers.channel_of("c") == "y"
    assert producers.channels("p") == ["y"]
    assert "q" not in producers.groups
    producers.unregister("y", "unknown")
    producers.unregister("y", "p")
    assert producers.channel_of("c") is None
    assert producers.channels("p") == []


def test_a_producer_that_leaves_one_of_its_groups_is_still_reached() -> None:
    producers = Producers[str]()
    producers.register("x", member("c"), "p")
    producers.register("x", member("c"), "q")
    producers.unregister("x", "p")
    assert producers.channel_of("c") == "x"


def test_silent_producers_are_found() -> None:
    producers = Producers[str]()
    producers.register("x", member(), "p")
    producers.register("x", member(), "q")
    assert list(producers.silent(NOW + SILENCE_MS_MAX + 1)) == [["x"], ["x"]]


steps = st.lists(
    st.tuples(
        st.sampled_from(["register", "unregister", "closed"]),
        st.sampled_from("xyz"),
        st.sampled_from("gh"),
        st.sampled_from("cd"),
        st.sets(st.sampled_from("TU")),
    )
)


@given(steps)
def test_a_group_is_told_exactly_when_its_clients_or_topics_change(
    taken: list[tuple[str, str, str, str, set[str]]],
) -> None:
    consumers = Consumers[str]()

    def seen(group: str) -> object:
        known = consumers.groups.get(group)
        return known and (
            sorted((c, m.client_id) for c, m in known.members.items()),
            sorted(known.subscriptions),
        )

    for step, channel, group, client_id, topics in taken:
        before = {name: seen(name) for name in "gh"}
        match step:
            case "register":
                wanted = tuple(map(Subscription, sorted(topics)))
                told = [group] * consumers.register(
                    channel, member(client_id), ConsumerData(group, subscriptions=wanted)
                )
            case "unregister":
                told = [group] * consumers.unregister(channel, group)
            case _:
                told = consumers.closed(channel)
        assert told == [name for name in "gh" if seen(name) != before[name]]
        assert all(known.members for known in consumers.groups.values())


def calls_of(work: Callable[[], object]) -> int:
    """How many calls of Python functions it makes; none of them is of an object that other tests
    left as garbage.
    """
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    gc.disable()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


def test_who_comes_to_a_large_group_that_agrees_or_leaves_it_is_not_compared_with_all_members() -> (
    None
):
    """Thousands leave in one turn of the loop when their host fails."""

    def calls(size: int) -> tuple[int, int]:
        consumers: Consumers[int] = Consumers()

        def join(channel: int) -> None:
            consumers.register(channel, member(f"c{channel}"), data())
            assert not consumers.disagreement(channel, data())

        for channel in range(size):
            join(channel)
        return calls_of(lambda: join(size)), calls_of(lambda: consumers.closed(1))

    assert calls(1000) == calls(10)


def test_a_group_disagrees_until_all_who_differ_have_left_or_changed_their_mind() -> None:
    """Whoever it is that comes, changes its mind, or leaves in whatever order."""
    rng = random.Random(3)
    consumers: Consumers[int] = Consumers()
    wants: dict[int, int] = {}
    disagreed = set[bool]()
    for _ in range(2000):
        channel = rng.randrange(8)
        if channel in wants and rng.random() < 0.4:
            consumers.closed(channel)
            del wants[channel]
        else:
            wants[channel] = rng.choice((1, 1, 1, 2))
            wanted = data("g", Subscription("T", str(wants[channel])))
            consumers.register(channel, member(f"c{channel}"), wanted)
            consumers.disagreement(channel, wanted)
        differ = len({*wants.values()}) > 1
        disagreed.add(differ)
        if wants:
            text = consumers.groups["g"].disagreement
            assert bool(text) == differ
            assert (
                len({wants[int(number)] for number in re.findall(r"\bc(\d)\b", text)}) == 2 * differ
            )
    assert disagreed == {False, True}
