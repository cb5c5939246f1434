"""Push consumers: who gets what, from where on, and how far a group is taken to be."""

from __future__ import annotations

import time
from itertools import pairwise

from roquet.protocol.json_dialect import load
from tests.interop import wire
from tests.interop.apache import Version, start_driver
from tests.interop.ground import BROKER
from tests.interop.scenarios.registry import scenario
from tests.interop.scene import QUIET_SECONDS, Lines, Push, Scene

V5 = Version.V5
GET_ALL_CONSUMER_OFFSET = 43
LOCK_BATCH = 41
UNLOCK_BATCH = 42
CONSUMER_LIST = 38
CONSUMER_CONNECTIONS = 203
LOCK_SECONDS = 60
PATIENT = ("--heartbeat", 1000, "--api-timeout", 20_000)


def bodies(count: int, text: str = "message-") -> list[str]:
    return sorted(f"{text}{i}" for i in range(count))


def stored_offsets(scene: Scene, group: str, topic: str) -> dict[int, int]:
    """A group's offsets as a slave gets to know them; empty: the broker knows of none."""
    table = load(scene.ask(GET_ALL_CONSUMER_OFFSET).body)["offsetTable"]
    return {int(queue): offset for queue, offset in table.get(f"{topic}@{group}", {}).items()}


def second(from_now: int) -> str:
    """A second of local time, as clients write it."""
    return time.strftime("%Y%m%d%H%M%S", time.localtime(time.time() + from_now))


# who gets what


@scenario()
def the_members_of_a_group_share_the_messages_and_every_group_gets_all(scene: Scene) -> None:
    topic, group = scene.topic(4), scene.group()
    one, two, other = scene.push(group, topic), scene.push(group, topic), scene.push(scene.group(), topic)
    scene.wait(lambda: len(one.assigned(topic)) == len(two.assigned(topic)) == 2, "two queues for each")
    scene.producer().send(topic, 8)
    assert other.bodies(8, QUIET_SECONDS) == bodies(8)
    assert sorted(one.bodies(4) + two.bodies(4)) == bodies(8)
    assert {line["queueId"] for line in one.messages()} == one.assigned(topic)


@scenario()
def a_broadcast_reaches_every_member_and_leaves_no_offset_at_the_broker(scene: Scene) -> None:
    topic, group = scene.topic(2), scene.group()
    members = [scene.push(group, topic, broadcast=True) for _ in range(2)]
    for member in members:
        member.wait_assigned(topic, {0, 1})
    scene.producer().send(topic, 6)
    for member in members:
        assert member.bodies(6, QUIET_SECONDS) == bodies(6)
    assert stored_offsets(scene, group, topic) == {}


@scenario()
def a_broadcast_that_is_refused_does_not_come_again(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    member = scene.push(group, topic, broadcast=True, fail=1)
    scene.producer().send(topic, 3)
    assert member.bodies(3, 3 * QUIET_SECONDS) == bodies(3)


@scenario()
def a_listener_gets_messages_together_up_to_its_batch_size(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    scene.producer().send(topic, 10, way="batch")
    member = scene.push(group, topic, batch=4)
    assert member.bodies(10) == bodies(10)
    assert sorted(line["together"] for line in member.messages()) == [2] * 2 + [4] * 8


@scenario()
def a_consumer_that_is_suspended_takes_up_again_where_it_was(scene: Scene) -> None:
    topic = scene.topic()
    member, producer = scene.push(scene.group(), topic), scene.producer()
    producer.send(topic, 2)
    assert member.bodies(2) == bodies(2)
    member.call("suspend")
    time.sleep(0.2)
    producer.send(topic, 2, body="later {i}")
    producer.send(topic, 1, body="last {i}")
    time.sleep(QUIET_SECONDS)
    assert len(member.messages()) <= 5  # A pull that was under way may still bring what came.
    member.call("resume")
    assert member.bodies(5) == sorted([*bodies(2), "later 0", "later 1", "last 0"])


# in order


@scenario()
def an_orderly_consumer_gets_each_queue_in_order_and_one_at_a_time(scene: Scene) -> None:
    topic, group = scene.topic(3), scene.group()
    scene.producer().send(topic, 30, way="ordered", keysOfOrder=3)
    member = scene.push(group, topic, orderly=True, threads=8, pause=5)
    assert member.bodies(30, QUIET_SECONDS) == bodies(30)
    for queue in range(3):
        lines = [line for line in member.messages() if line["queueId"] == queue]
        assert [line["body"] for line in lines] == [f"message-{i}" for i in range(queue, 30, 3)]
        times = [line["at"] for line in lines]
        assert all(later - earlier >= 4 for earlier, later in pairwise(times))


@scenario()
def a_message_an_orderly_consumer_refuses_comes_again_before_the_next(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    scene.producer().send(topic, 3)
    member = scene.push(group, topic, orderly=True, fail=2, suspend=50)
    lines = member.messages(9)
    assert [line["body"] for line in lines] == [f"message-{i}" for i in range(3) for _ in range(3)]
    assert [line["reconsumeTimes"] for line in lines] == [0, 1, 2] * 3
    assert {line["topic"] for line in lines} == {topic}


@scenario()
def an_orderly_consumer_commits_or_rolls_back_by_hand(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    scene.producer().send(topic, 3)
    member = scene.push(group, topic, orderly=True, manual=True, fail=1, batch=3, suspend=50)
    assert member.bodies(6, QUIET_SECONDS) == sorted(bodies(3) * 2)
    member.stop()
    assert stored_offsets(scene, group, topic) == {0: 3}


def lock(scene: Scene, code: int, group: str, client_id: str, topic: str, queues: int = 1) -> list[int]:
    """The queues that the broker says are locked for the client now."""
    wanted = [{"topic": topic, "brokerName": BROKER, "queueId": queue} for queue in range(queues)]
    body = wire.json_body({"consumerGroup": group, "clientId": client_id, "mqSet": wanted})
    answer = scene.ask(code, body=body)
    assert answer.code == 0
    return sorted(queue["queueId"] for queue in load(answer.body)["lockOKMQSet"]) if answer.body else []


@scenario()
def queues_of_an_orderly_consumer_are_locked_until_it_stops(scene: Scene) -> None:
    topic, group = scene.topic(2), scene.group()
    scene.producer().send(topic, 4)
    member = scene.push(group, topic, orderly=True)
    assert member.bodies(4) == bodies(4)
    assert lock(scene, LOCK_BATCH, group, "somebody", topic, 2) == []
    assert lock(scene, LOCK_BATCH, scene.group(), "somebody", topic, 2) == [0, 1], "another group's locks are its own"
    lock(scene, UNLOCK_BATCH, group, "somebody", topic, 2)
    assert lock(scene, LOCK_BATCH, group, "somebody", topic, 2) == [], "only the owner unlocks"
    member.stop()
    assert lock(scene, LOCK_BATCH, group, "somebody", topic, 2) == [0, 1]


@scenario(seconds=90)
def a_lock_that_nobody_renews_ends_after_a_minute(scene: Scene) -> None:
    """A crashed consumer's queues go to another at once, but it may consume them only when the lock has ended."""
    topic, group = scene.topic(), scene.group()
    scene.producer().send(topic, 5)
    words = ("consume", scene.namesrv, topic, group, 100, 300, "--orderly", *PATIENT)
    with start_driver(scene.version, *words, java_options=["-Xmx128m"]) as crashed:
        crashed.wait_lines(5)
        crashed.kill()
    locked = time.monotonic()
    survivor = scene.push(group, topic, orderly=True)
    scene.producer().send(topic, 1, body="afterwards")
    scene.wait(lambda: any(line["body"] == "afterwards" for line in survivor.messages()), "the message", 110)
    assert LOCK_SECONDS - 25 < time.monotonic() - locked < LOCK_SECONDS + 45, "a client asks again every 20 s"


@scenario(seconds=65)
def a_lock_is_somebody_elses_after_just_a_minute(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    assert lock(scene, LOCK_BATCH, group, "one", topic) == [0]
    time.sleep(LOCK_SECONDS - 5)
    assert lock(scene, LOCK_BATCH, group, "two", topic) == []
    scene.wait(lambda: lock(scene, LOCK_BATCH, group, "two", topic) == [0], "the end of the lock", 10)


# waiting for messages


@scenario()
def a_waiting_consumer_gets_a_message_at_once(scene: Scene) -> None:
    topic = scene.topic()
    member, producer = scene.push(scene.group(), topic), scene.producer()
    producer.send(topic, 1)
    member.messages(1)
    time.sleep(1)
    started = time.monotonic()
    producer.send(topic, 1)
    assert len(member.messages(2)) == 2
    assert time.monotonic() - started < 2, "the broker held the pull and woke it"


@scenario(seconds=10)
def a_pull_is_held_until_its_time_is_over_or_a_message_comes(scene: Scene) -> None:
    topic = scene.topic()
    puller = scene.pull(hold=3000)
    started = time.monotonic()
    nothing = puller.take(topic, 0, 0, wait=True)
    assert (nothing["status"], nothing["next"], nothing["messages"]) == ("NO_NEW_MSG", 0, [])
    assert 2.9 < time.monotonic() - started < 10, "the broker looks every 5 s"
    at_once = puller.take(topic, 0, 0)
    assert at_once["status"] == "NO_NEW_MSG"


@scenario(ground="strict")
def without_long_polling_a_pull_is_held_for_a_second(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group(retryMaxTimes=16)
    puller = scene.pull(group, hold=15_000)
    started = time.monotonic()
    assert puller.take(topic, 0, 0, wait=True)["status"] == "NO_NEW_MSG"
    assert 0.9 < time.monotonic() - started < 5


# where a group begins


@scenario()
def a_new_group_begins_with_the_first_message_of_a_young_queue_whatever_it_asks_for(scene: Scene) -> None:
    topic = scene.topic()
    scene.producer().send(topic, 3)
    tomorrow = second(86_400)
    for wish in ({"from": "FIRST_OFFSET"}, {"from": "LAST_OFFSET"}, {"from": "TIMESTAMP", "timestamp": tomorrow}):
        assert scene.push(scene.group(), topic, **wish).bodies(3) == bodies(3)


@scenario(ground="strict")
def a_new_group_begins_where_it_asks_for_in_a_queue_that_is_not_in_memory(scene: Scene) -> None:
    topic, producer = scene.topic(), scene.producer()
    producer.send(topic, 2, body="old {i}")
    time.sleep(3.1)
    between = second(0)  # Nearer to the young ones: the nearest message is where a search by time ends.
    producer.send(topic, 2, body="young {i}")
    wishes = {
        "FIRST_OFFSET": ["new", "old 0", "old 1", "young 0", "young 1"],
        "LAST_OFFSET": ["new"],
        "TIMESTAMP": ["new", "young 0", "young 1"],
    }
    members = {
        wish: scene.push(scene.group(retryMaxTimes=16), topic, **{"from": wish}, timestamp=between) for wish in wishes
    }
    for member in members.values():
        member.wait_assigned(topic, {0})
    producer.send(topic, 1, body="new")
    for wish, expected in wishes.items():
        assert members[wish].bodies(len(expected), QUIET_SECONDS) == expected, wish


# how far a group is


@scenario()
def a_group_goes_on_where_its_last_member_stopped(scene: Scene) -> None:
    topic, group, producer = scene.topic(2), scene.group(), scene.producer()
    for start in ("first ", "second "):
        producer.send(topic, 6, body=f"{start}{{i}}")
        member = scene.push(group, topic)
        assert member.bodies(6, QUIET_SECONDS) == bodies(6, start)
        member.stop()
    assert sum(stored_offsets(scene, group, topic).values()) == 12


@scenario()
def an_offset_is_committed_with_the_next_pull(scene: Scene) -> None:
    """The consumer itself says nothing for an hour; what it has consumed is told with its pulls."""
    topic, group, producer = scene.topic(), scene.group(), scene.producer()
    member = scene.push(group, topic, persist=3_600_000)
    member.wait_assigned(topic, {0})
    for count in (1, 2, 3):
        producer.send(topic, 1)
        assert len(member.messages(count)) == count
        time.sleep(0.2)
    scene.wait(lambda: stored_offsets(scene, group, topic).get(0, 0) >= 2, "an offset that came with a pull")


@scenario()
def an_offset_is_committed_by_itself(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    puller = scene.pull(group)
    puller.ask("commit", topic, offset=0)
    scene.producer().send(topic, 5)
    puller.ask("commit", topic, offset=4)
    scene.wait(lambda: stored_offsets(scene, group, topic) == {0: 4}, "the offset at the broker")
    assert puller.ask("committed", topic) == 4
    puller.stop()
    assert scene.push(group, topic).bodies(1, QUIET_SECONDS) == ["message-4"]


@scenario()
def an_offset_may_be_set_back(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    scene.producer().send(topic, 5)
    fields = {"consumerGroup": group, "topic": topic, "queueId": 0}
    for offset in (5, 2):
        assert scene.ask(15, fields | {"commitOffset": offset}).code == 0
        assert scene.committed(group, topic) == offset


@scenario()
def a_pull_beyond_the_end_is_told_where_the_end_is(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    scene.producer().send(topic, 3)
    puller = scene.pull(group)
    end = puller.take(topic, 0, 3)
    assert (end["status"], end["next"], end["min"], end["max"]) == ("NO_NEW_MSG", 3, 0, 3)
    beyond = puller.take(topic, 0, 9)
    assert (beyond["status"], beyond["next"], beyond["min"], beyond["max"]) == ("OFFSET_ILLEGAL", 3, 0, 3)
    empty = scene.topic()
    assert puller.take(empty, 0, 0)["status"] == "NO_NEW_MSG"
    nowhere = puller.take(empty, 0, 7)
    assert (nowhere["status"], nowhere["next"]) == ("OFFSET_ILLEGAL", 0)


@scenario()
def a_pull_that_was_set_right_is_written_down_in_a_topic_of_its_own(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    scene.producer().send(topic, 3)
    scene.pull(group).take(topic, 0, 9)
    reader = scene.pull()
    end = scene.max_offset("OFFSET_MOVED_EVENT")

    def events() -> Lines:
        found = reader.take("OFFSET_MOVED_EVENT", 0, max(0, end - 30))["messages"]
        return [line for line in found if line["tags"] == group]

    scene.wait(lambda: bool(events()), "the event")
    (event,) = events()
    assert event["keys"] == group
    told = load(event["body"].encode())
    assert (told["consumerGroup"], told["offsetRequest"], told["offsetNew"]) == (group, 9, 3)
    assert told["messageQueue"] == {"brokerName": BROKER, "queueId": 0, "topic": topic}


@scenario(seconds=15)
def a_group_whose_offset_is_beyond_the_end_consumes_what_comes_next(scene: Scene) -> None:
    topic, group, producer = scene.topic(), scene.group(), scene.producer()
    producer.send(topic, 3)
    assert scene.ask(15, {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": 50}).code == 0
    member = scene.push(group, topic)
    member.wait_assigned(topic, {0})
    time.sleep(12)  # So long a client takes to begin anew at the offset it is told.
    producer.send(topic, 1, body="next")
    assert member.bodies(1, QUIET_SECONDS) == ["next"]


# members come and go


def client_ids(scene: Scene, group: str) -> set[str]:
    answer = scene.ask(CONSUMER_LIST, {"consumerGroup": group})
    return set(load(answer.body)["consumerIdList"]) if answer.code == 0 else set()


def shares(topic: str, *members: Push) -> list[set[int]]:
    return [member.assigned(topic) for member in members]


@scenario()
def the_list_of_consumers_follows_who_comes_and_goes(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    assert scene.ask(CONSUMER_LIST, {"consumerGroup": group}).code == 1
    one, two = scene.push(group, topic), scene.push(group, topic)
    assert client_ids(scene, group) == {one.client_id, two.client_id}
    one.stop()
    assert client_ids(scene, group) == {two.client_id}
    two.stop()
    assert scene.ask(CONSUMER_LIST, {"consumerGroup": group}).code == 1


@scenario()
def queues_are_shared_out_anew_at_once_when_a_member_comes_or_goes(scene: Scene) -> None:
    """Without word from the broker, a client looks every 20 s only."""
    topic, group = scene.topic(4), scene.group()
    one = scene.push(group, topic)
    one.wait_assigned(topic, range(4))
    started = time.monotonic()
    two = scene.push(group, topic)
    scene.wait(lambda: sorted(map(len, shares(topic, one, two))) == [2, 2], "two queues for each")
    assert set.union(*shares(topic, one, two)) == set(range(4))
    two.stop()
    one.wait_assigned(topic, range(4))
    assert time.monotonic() - started < 15


@scenario()
def a_group_that_is_not_to_be_told_of_changes_finds_out_by_itself(scene: Scene) -> None:
    topic, group = scene.topic(2), scene.group(notifyConsumerIdsChangedEnable=False)
    one = scene.push(group, topic)
    one.wait_assigned(topic, {0, 1})
    scene.push(group, topic)
    time.sleep(3 * QUIET_SECONDS)
    assert one.assigned(topic) == {0, 1}, "it has not looked yet"


@scenario(seconds=10)
def the_queues_of_a_consumer_that_crashed_go_to_the_others_at_once(scene: Scene) -> None:
    topic, group = scene.topic(4), scene.group()
    producer = scene.producer()
    producer.send(topic, 4)
    survivor = scene.push(group, topic)
    survivor.messages(4)
    words = ("consume", scene.namesrv, topic, group, 100, 300, *PATIENT)
    with start_driver(scene.version, *words, java_options=["-Xmx128m"]) as crashed:
        scene.wait(lambda: len(survivor.assigned(topic)) == 2, "a member with the other half", 60)
        crashed.kill()
        started = time.monotonic()
        survivor.wait_assigned(topic, range(4))
        assert time.monotonic() - started < 15
    before = len(survivor.messages())
    producer.send(topic, 8, body="after {i}")
    scene.wait(lambda: len(survivor.messages()) >= before + 8, "all messages")


@scenario()
def three_members_share_out_five_queues_as_their_strategy_says(scene: Scene) -> None:
    topic = scene.topic(5)
    for strategy, expected in {"AVG": [{0, 1}, {2, 3}, {4}], "CIRCLE": [{0, 3}, {1, 4}, {2}]}.items():
        group = scene.group()
        members = [scene.push(group, topic, strategy=strategy) for _ in range(3)]
        members.sort(key=lambda member: member.client_id)
        for member, share in zip(members, expected, strict=True):
            member.wait_assigned(topic, share)


@scenario()
def a_member_more_than_there_are_queues_gets_none(scene: Scene) -> None:
    topic, group = scene.topic(2), scene.group()
    members = [scene.push(group, topic) for _ in range(3)]
    scene.wait(lambda: sorted(map(len, shares(topic, *members))) == [0, 1, 1], "one queue each for two of them")


@scenario()
def the_last_subscription_counts_for_a_group_whose_members_want_different_tags(scene: Scene) -> None:
    """Members of a group have to agree: the broker selects by what it heard last, each client by its own wish."""
    topic, group = scene.topic(2), scene.group()
    one = scene.push(group, topic, tags="a")
    one.wait_assigned(topic, {0, 1})
    two = scene.push(group, topic, tags="b")
    scene.wait(lambda: sorted(map(len, shares(topic, one, two))) == [1, 1], "a queue for each")
    time.sleep(2.5)  # Heartbeats of both come every second; a subscription is the newer for each change of queues.
    seen = load(scene.ask(CONSUMER_CONNECTIONS, {"consumerGroup": group}).body)["subscriptionTable"][topic]
    winner, loser = (one, two) if seen["subString"] == "a" else (two, one)
    producer = scene.producer()
    for queue in (0, 1):
        producer.send(topic, 4, tags="a,b", queue=queue, body=f"{queue} {{i}}")
    (own,) = winner.assigned(topic)
    wanted = (0, 2) if winner is one else (1, 3)
    assert winner.bodies(2, QUIET_SECONDS) == [f"{own} {i}" for i in wanted]
    assert loser.messages() == []


@scenario()
def a_consumer_that_subscribes_to_another_topic_gets_that_too(scene: Scene) -> None:
    first, second, group = scene.topic(), scene.topic(), scene.group()
    member, producer = scene.push(group, first), scene.producer()
    producer.send(first, 1, body="first")
    assert member.bodies(1) == ["first"]
    member.call("subscribe", topic=second)
    producer.send(second, 1, body="second")
    assert member.bodies(2) == ["first", "second"]


@scenario()
def a_group_that_is_switched_off_gets_nothing_until_it_is_on_again(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group(consumeEnable=False)
    scene.producer().send(topic, 2)
    member = scene.push(group, topic)
    member.wait_assigned(topic, {0})
    time.sleep(QUIET_SECONDS)
    assert member.messages() == []
    scene.make_group(group)
    assert member.bodies(2) == bodies(2)


@scenario()
def a_group_that_may_not_broadcast_gets_nothing_that_way(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group(consumeBroadcastEnable=False)
    scene.producer().send(topic, 2)
    member = scene.push(group, topic, broadcast=True)
    member.wait_assigned(topic, {0})
    time.sleep(QUIET_SECONDS)
    assert member.messages() == []
    member.stop()
    assert scene.push(group, topic).bodies(2) == bodies(2)


@scenario(ground="strict")
def a_group_that_nobody_made_gets_nothing_where_none_comes_to_be_by_itself(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    scene.producer().send(topic, 2)
    member = scene.push(group, topic)
    time.sleep(2 * QUIET_SECONDS)
    assert member.messages() == []
    scene.make_group(group)
    assert member.bodies(2) == bodies(2)


# lite pull and pull

LITE_PULL = "Apache's broker knows the lite pulls of 5.x clients from 5.x on only"


@scenario(beyond={V5: LITE_PULL})
def a_lite_pull_consumer_gets_the_messages_of_its_topic_and_commits(scene: Scene) -> None:
    topic, group = scene.topic(2), scene.group()
    scene.producer().send(topic, 8)
    member = scene.lite(group, topic)
    assert sorted(line["body"] for line in member.poll(8)) == bodies(8)
    assert stored_offsets(scene, group, topic) in ({}, {0: 0, 1: 0})
    member.ask("commit", topic)
    scene.wait(lambda: sum(stored_offsets(scene, group, topic).values()) == 8, "the commit")
    member.stop()
    scene.producer().send(topic, 2, body="more {i}")
    assert sorted(line["body"] for line in scene.lite(group, topic).poll(2)) == ["more 0", "more 1"]


@scenario(beyond={V5: LITE_PULL})
def a_lite_pull_consumer_commits_by_itself(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    scene.producer().send(topic, 3)
    member = scene.lite(group, topic, autoCommit=True)
    assert len(member.poll(3)) == 3

    def commits() -> bool:
        member.poll(1, 0.5)
        return stored_offsets(scene, group, topic) == {0: 3}

    scene.wait(commits, "the commit")


@scenario(beyond={V5: LITE_PULL})
def lite_pull_consumers_share_the_queues(scene: Scene) -> None:
    topic, group = scene.topic(4), scene.group()
    members = [scene.lite(group, topic) for _ in range(2)]
    time.sleep(3)
    scene.producer().send(topic, 8)
    got = [member.poll(4, 10) for member in members]
    assert [len(lines) for lines in got] == [4, 4]
    assert sorted(line["body"] for lines in got for line in lines) == bodies(8)


@scenario(beyond={V5: LITE_PULL})
def a_lite_pull_consumer_with_queues_of_its_own_seeks(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    scene.producer().send(topic, 5)
    member = scene.lite(group)
    member.ask("assign", topic)
    assert member.ask("queues", topic) == [0]
    assert [line["queueOffset"] for line in member.poll(5)] == [0, 1, 2, 3, 4]
    member.ask("seek", topic, offset=3)
    assert [line["queueOffset"] for line in member.poll(2)] == [3, 4]
    member.ask("seekToBegin", topic)
    assert [line["queueOffset"] for line in member.poll(5)] == [0, 1, 2, 3, 4]
    member.ask("seekToEnd", topic)
    assert member.poll(1, QUIET_SECONDS) == []
    scene.producer().send(topic, 1, body="new")
    assert [line["body"] for line in member.poll(1)] == ["new"]


@scenario(beyond={V5: LITE_PULL})
def a_lite_pull_consumer_pauses_and_resumes(scene: Scene) -> None:
    topic = scene.topic()
    member = scene.lite(scene.group())
    member.ask("assign", topic)
    member.ask("pause", topic)
    producer = scene.producer()
    producer.send(topic, 1, body="ends the pull that waits")
    under_way = member.poll(1, QUIET_SECONDS)
    producer.send(topic, 2)
    assert member.poll(1, QUIET_SECONDS) == []
    member.ask("resume", topic)
    assert sorted(line["body"] for line in [*under_way, *member.poll(3 - len(under_way))])[1:] == bodies(2)


@scenario()
def a_lite_pull_consumer_finds_the_offset_of_a_time(scene: Scene) -> None:
    topic, producer = scene.topic(), scene.producer()
    producer.send(topic, 2)
    time.sleep(0.5)
    (third,) = producer.send(topic, 1)
    member = scene.lite(scene.group())
    stored = scene.pull().take(topic, 0, 2)["messages"][0]["storeTimestamp"]
    assert third["queueOffset"] == 2
    assert member.ask("offsetForTimestamp", topic, timestamp=stored) == 2
    assert member.ask("offsetForTimestamp", topic, timestamp=0) == 0


@scenario()
def a_pull_takes_as_many_as_it_asks_for(scene: Scene) -> None:
    topic = scene.topic()
    scene.producer().send(topic, 40, way="batch")
    puller = scene.pull()
    for most, count in ((1, 1), (5, 5), (32, 32), (40, 32)):
        found = puller.take(topic, 0, 0, most)
        assert (found["status"], len(found["messages"]), found["next"]) == ("FOUND", count, count)
    assert [line["queueOffset"] for line in puller.take(topic, 0, 38)["messages"]] == [38, 39]


@scenario(ground="strict")
def a_pull_of_what_is_not_in_memory_takes_eight_at_most(scene: Scene) -> None:
    topic = scene.topic()
    scene.producer().send(topic, 40, way="batch")
    found = scene.pull(scene.group(retryMaxTimes=16)).take(topic, 0, 0)
    assert len(found["messages"]) == 8


@scenario()
def a_pull_passes_over_what_it_does_not_want(scene: Scene) -> None:
    topic = scene.topic()
    scene.producer().send(topic, 6, tags="a,b,c")
    puller = scene.pull()
    some = puller.take(topic, 0, 0, tags="a || c")
    assert ([line["tags"] for line in some["messages"]], some["next"]) == (["a", "c", "a", "c"], 6)
    none = puller.take(topic, 0, 0, tags="x")
    assert (none["status"], none["next"]) == ("NO_MATCHED_MSG", 6)
