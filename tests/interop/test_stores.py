"""One store directory, opened by Apache's broker and by ours in turn: nothing moves, nothing is
lost, groups go on.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.interop import wire
from tests.interop.apache import (
    ApacheBroker,
    ApacheNameServer,
    JavaClients,
    require_java,
    wait_until,
)
from tests.interop.place import (
    BUILT_ALREADY,
    MIB,
    QUEUES_AHEAD,
    SHARED,
    Broker,
    Lines,
    Place,
    assert_no_complaints,
    each_of_a_batch,
    ids,
    last_file_start,
    log_files,
    sent_ids,
)
from tests.interop.processes import SECONDS
from tests.interop.store_rows import assert_read_as_rows
from tests.interop.stored import (
    Queue,
    Stored,
    assert_serves_its_log,
    log_queues,
    log_records,
    served,
)

pytestmark = pytest.mark.interop

CLIENT = "4.9.7-json"
CONSUMER_SEND_MSG_BACK = 36
NOTED: dict[str, str | int] = {
    "enableConsumeQueueExt": "true",
    "mappedFileSizeConsumeQueueExt": MIB,
    "mappedFileSizeConsumeQueue": 20 * 1000,
    "mappedFileSizeCommitLog": 64 * 1024,
}
"""Notes on queue entries, and a log of many files. Apache's broker looks for a queue's begin in its
first file only.
"""
NOTES_BEGIN = -(1 << 31) - 1
"""Numbers up to this one are no tag codes."""
POOLED: dict[str, str | int] = {
    "transientStorePoolEnable": "true",
    "commitIntervalCommitLog": 3000,
    "flushIntervalCommitLog": 3000,
    "flushConsumeQueueThoroughInterval": 60_000,
}
"""After a commit there is none for a while."""
DELIVERED = {"1": 2, "2": 2, "3": 3}
"""How many messages of `fill_with_every_kind` waited for each level of delay, and came: 3 were
refused.
"""


@pytest.fixture(scope="module")
def name_server() -> Iterator[ApacheNameServer]:
    require_java()
    with ApacheNameServer() as server:
        yield server


@pytest.fixture
def place(name_server: ApacheNameServer, clients: JavaClients, tmp_path: Path) -> Place:
    return Place(name_server.address, tmp_path / "store", clients[CLIENT], SHARED)


@pytest.fixture
def place_with_notes(name_server: ApacheNameServer, clients: JavaClients, tmp_path: Path) -> Place:
    return Place(name_server.address, tmp_path / "store", clients[CLIENT], SHARED | NOTED)


@pytest.fixture
def place_with_pool(name_server: ApacheNameServer, clients: JavaClients, tmp_path: Path) -> Place:
    return Place(name_server.address, tmp_path / "store", clients[CLIENT], SHARED | POOLED)


def test_a_store_goes_to_and_fro_between_the_brokers_over_kills_and_stops(place: Place) -> None:
    with place.apaches() as apaches:
        fill_with_every_kind(place, apaches)
        place.takes("Kinds", "G", 80)
        late = place.produce("Kinds", 8, "--body", "late-")
        place.produce("Kinds", 1, "--body", "pending-", "--delay", 5)
        place.await_progress("G", lag=8)
        wait_until(
            lambda: place.offsets("delayOffset") == DELIVERED, "the progress of what was delayed"
        )
        assert_read_as_rows(place.store_dir)
        apaches.kill()
    assert len(log_files(place)) > 1
    assert_read_as_rows(place.store_dir)

    with place.ours() as ours:
        assert_serves_its_log(ours.address, place.store_dir)
        assert_found_by_java(place)
        (*got, pending) = sorted(place.takes("Kinds", "G", 9), key=stored_at)
        assert (ids(got), pending["body"]) == (ids(late), "pending-0")
        place.takes("Kinds", "G-new", 89)
        mine = appended_by_ours(place)
        place.produce("Kinds", 1, "--body", "still-pending-", "--delay", 5)
        ours.stop()
        assert place.offsets("delayOffset") == {**DELIVERED, "5": 1}
        assert_read_as_rows(place.store_dir)

    with place.apaches(transactionCheckInterval=1000) as apaches:
        (*got, pending) = sorted(place.takes("Kinds", "G", len(mine) + 1), key=stored_at)
        assert (ids(got), pending["body"]) == (ids(mine), "still-pending-0")
        transact = (
            "--transaction",
            "commit",
            "--check",
            "commit",
            "--group",
            "P-open",
            "--linger",
            2000,
        )
        place.produce("Kinds", 1, "--body", "closed-", *transact)
        assert {line["body"] for line in place.takes("Kinds", "G", 2)} == {"open-0", "closed-0"}
        assert_serves_its_log(apaches.address, place.store_dir)
        place.takes("Kinds", "G-newer", count_of(place, "Kinds"))
        late = place.produce("Kinds", 8, "--body", "later-still-")
        assert_no_complaints(apaches)
        apaches.stop()

    with place.ours() as ours:
        assert_serves_its_log(ours.address, place.store_dir)
        assert ids(place.takes("Kinds", "G", 8)) == ids(late)
        mine = appended_by_ours(place)
        place.await_progress("G", lag=len(mine))
        assert_read_as_rows(place.store_dir)
        ours.kill()
        assert_read_as_rows(place.store_dir)

    with place.apaches() as apaches:
        assert ids(place.takes("Kinds", "G", len(mine))) == ids(mine)
        assert_serves_its_log(apaches.address, place.store_dir, keys_from=last_file_start(place))
        read_by_a_new_group(place)
        assert_no_complaints(apaches, BUILT_ALREADY)


def assert_goes_on(before: Lines, after: Lines) -> None:
    """The queues go on behind messages that are no more."""
    places = sorted((line["queueId"], line["queueOffset"]) for line in (*before, *after))
    each = Counter(queue_id for queue_id, _ in places)
    assert places == [
        (queue_id, offset) for queue_id in sorted(each) for offset in range(each[queue_id])
    ]


def test_notes_on_queue_entries_and_queues_that_begin_above_0(place_with_notes: Place) -> None:
    place = place_with_notes
    tagged = ("--tag", "A,B", "--size", 1000, "--keys")
    with place.ours() as ours:
        before = place.produce("Gone", 4)
        place.produce("Tags", 80, *tagged, "first-")
        ours.stop()

    with place.apaches() as apaches:
        assert_selects(place, apaches)
        place.produce("Tags", 80, *tagged, "second-")
        assert_selects(place, apaches)
        place.takes("Tags", "G", 80, "--tag", "A")
        assert_no_complaints(apaches)
        apaches.stop()

    place.remove_first_log_file()
    with place.ours() as ours:
        assert_selects(place, ours)
        left = assert_serves_its_log(ours.address, place.store_dir)
        assert_begins_above_0(place, left)
        place.produce("Tags", 40, *tagged, "third-")
        gone = place.produce("Gone", 4)
        assert_goes_on(before, gone)
        place.takes("Tags", "G", 20, "--tag", "A")
        place.await_progress("G", "Tags", tag="A")
        ours.kill()

    place.remove_first_log_file()
    assert_read_as_rows(place.store_dir)
    with place.apaches() as apaches:
        assert_selects(place, apaches)
        left = assert_serves_its_log(
            apaches.address, place.store_dir, keys_from=last_file_start(place)
        )
        assert_begins_above_0(place, left)
        place.produce("Tags", 8, *tagged, "fourth-")
        place.takes("Tags", "G", 4, "--tag", "A")
        assert_no_complaints(apaches, BUILT_ALREADY)


def assert_begins_above_0(place: Place, left: Mapping[Queue, Mapping[int, Stored]]) -> None:
    """Apache's client is told where the queue begins, and finds the oldest message there."""
    stored = left["Tags", 0]
    begin, end = min(stored), max(stored) + 1
    for asked, status in (0, "OFFSET_ILLEGAL"), (begin, "FOUND"):
        told, *got = place.client.run("pull", place.namesrv, "Tags", 0, asked, 1).check()
        assert (told["status"], told["minOffset"], told["maxOffset"]) == (status, begin, end)
        assert told["nextBeginOffset"] == begin + len(got)
    assert begin > 0
    assert [line["body"] for line in got] == [stored[begin].text]


def assert_selects(place: Place, broker: Broker) -> None:
    """Each entry has a note instead of a tag's code, and the broker itself leaves out what nobody
    asked for.
    """
    for (topic, queue_id), stored in log_queues(place.store_dir).items():
        if topic == "Tags":
            (file,) = (place.store_dir / "consumequeue" / topic / str(queue_id)).iterdir()
            entries = struct.iter_unpack(">qiq", file.read_bytes())
            codes = [code for at, _, code in entries if at in {each.at for each in stored.values()}]
            assert len(codes) == len(stored)
            assert max(codes) <= NOTES_BEGIN
            wanted = {
                offset: each.data
                for offset, each in stored.items()
                if each.properties["TAGS"] == "A"
            }
            assert served(broker.address, (topic, queue_id), "A") == wanted


def test_a_kill_takes_of_a_store_pool_only_what_nobody_was_shown(place_with_pool: Place) -> None:
    place = place_with_pool
    waiting: list[str] = []
    with place.ours() as ours:
        for life in ("first", "second"):
            shown = waiting + sent_ids(
                place.produce("Pool", 20, "--body", f"{life}-", "--size", 1000)
            )
            assert ids(place.takes("Pool", "G", len(shown))) == sorted(shown)
            place.await_progress("G", "Pool")
            hidden = sent_ids(
                place.produce("Pool", 20, "--body", f"{life}-hidden-", "--size", 1000)
            )
            ours.kill()
            kept = [
                each.properties["UNIQ_KEY"]
                for each in log_records(place.store_dir)
                if each.topic == "Pool"
            ]
            waiting = kept[kept.index(shown[-1]) + 1 :]
            assert waiting == hidden[: len(waiting)], (
                "the first of them, if a commit came before the kill"
            )
            if life == "first":
                ours.start()
                assert_serves_its_log(ours.address, place.store_dir)

    with place.apaches() as apaches:
        assert_serves_its_log(apaches.address, place.store_dir)
        sent = sent_ids(place.produce("Pool", 4))
        assert ids(place.takes("Pool", "G", len(waiting) + 4)) == sorted(waiting + sent)
        assert_no_complaints(apaches, BUILT_ALREADY, QUEUES_AHEAD)


def test_under_sync_flush_64_java_threads_are_told_that_their_messages_are_safe(
    place: Place,
) -> None:
    with place.ours(flushDiskType="SYNC_FLUSH") as ours:
        place.produce("Synced", 4)
        sent = place.produce("Synced", 1280, "--threads", 64, "--size", 200)
        ours.kill()
        ours.start()
        got = place.takes("Synced", "G", 1284)
    where = {line["msgId"]: (line["queueId"], line["queueOffset"]) for line in got}
    assert all(where[line["msgId"]] == (line["queueId"], line["queueOffset"]) for line in sent)


def fill_with_every_kind(place: Place, apaches: ApacheBroker) -> None:
    """80 messages to read in the topic `Kinds`; two more wait there for their time and for their
    producer's word.
    """
    place.produce(
        "Kinds",
        40,
        "--tag",
        "A,B",
        "--keys",
        "key",
        "--property",
        "colour=blue,number={i}",
        "--flag",
        7,
    )
    place.produce("Kinds", 20, "--batch", 10, "--tag", "A", "--keys", "batch")
    place.produce("Kinds", 4, "--body", "zip-", "--size", 20_000)
    place.produce("Kinds", 10, "--body", "ordered-", "--queue", 2)
    place.produce("Kinds", 2, "--body", "soon-", "--delay", 1, "--keys", "delayed")
    place.produce("Kinds", 2, "--body", "later-", "--delay", 2, "--keys", "delayed")
    place.produce("Kinds", 1, "--body", "in-an-hour-", "--delay", 4)
    place.produce(
        "Kinds", 2, "--body", "committed-", "--transaction", "commit", "--keys", "committed"
    )
    place.produce("Kinds", 2, "--body", "rolled-back-", "--transaction", "rollback")
    place.produce("Kinds", 1, "--body", "open-", "--transaction", "unknown", "--group", "P-open")
    place.produce("Big", 4, "--body", "big-", "--size", 4 * MIB, "--compress-over", 5 * MIB)
    place.produce("Again", 3, "--body", "again-")
    place.takes("Again", "G-again", 3)
    wait_until(
        lambda: wire.has_topic(place.namesrv, "%RETRY%G-again"),
        "the topic for what the group refuses",
    )
    place.produce("Refused", 3, "--body", "refused-")
    refused = ("consume", place.namesrv, "Refused", "G-again", 3, SECONDS, "--fail", 1)
    assert len(place.client.run(*refused).check()) == 6
    give_up(place, apaches, "Again", "G-again")


def give_up(place: Place, broker: Broker, topic: str, group: str) -> None:
    """Make one message of the topic a dead letter of the group."""
    first = next(each for each in log_records(place.store_dir) if each.topic == topic)
    fields = {
        "offset": str(first.at),
        "group": group,
        "delayLevel": "-1",
        "originTopic": topic,
        "unitMode": "false",
    }
    fields |= {"originMsgId": first.properties["UNIQ_KEY"], "maxReconsumeTimes": "16"}
    assert wire.ask(broker.address, CONSUMER_SEND_MSG_BACK, fields).code == 0


def appended_by_ours(place: Place) -> Lines:
    """Sends of every kind that our broker takes; each got the next offset of its queue. Those to
    `Kinds`.
    """
    before = log_queues(place.store_dir)
    sent = place.produce(
        "Kinds", 12, "--body", "ours-", "--tag", "A,B", "--keys", "mine", "--property", "number={i}"
    )
    sent += place.produce("Kinds", 3, "--body", "ours-zip-", "--size", 20_000)
    sent += place.produce("Kinds", 2, "--body", "ours-ordered-", "--queue", 2)
    sent += each_of_a_batch(
        place.produce("Kinds", 6, "--batch", 6, "--body", "ours-batch-", "--keys", "mine-too")
    )
    big = place.produce(
        "Big", 2, "--body", "ours-big-", "--size", 4 * MIB, "--compress-over", 5 * MIB
    )
    after = log_queues(place.store_dir)
    places = {(queue, offset): each for queue, has in after.items() for offset, each in has.items()}
    old = {(queue, offset) for queue, has in before.items() for offset in has}
    for topic, lines in ("Kinds", sent), ("Big", big):
        for line in lines:
            each = places.pop(((topic, line["queueId"]), line["queueOffset"]))
            assert (each.offset_message_id, each.properties["UNIQ_KEY"]) == (
                line["offsetMsgId"],
                line["msgId"],
            )
    assert places.keys() == old, "nothing else is new"
    return sent


def assert_found_by_java(place: Place) -> None:
    """By key, by the client's id, and by the broker's."""
    for body in "message-7", "committed-1":
        each = next(
            each
            for each in log_records(place.store_dir)
            if (each.topic, each.text) == ("Kinds", body)
        )
        for command, word in (
            ("query", each.properties["KEYS"]),
            ("view", each.properties["UNIQ_KEY"]),
            ("view", each.offset_message_id),
        ):
            line, *_ = place.client.run(command, place.namesrv, "Kinds", word).check()
            assert (line["body"], line["queueOffset"], line["commitLogOffset"]) == (
                body,
                each.queue_offset,
                each.at,
            )


def read_by_a_new_group(place: Place) -> None:
    """Apache's consumer gets all that the log has of each topic, from its begin to its end."""
    for topic in ("Kinds", "Big", "Again", "Refused", "%RETRY%G-again", "%DLQ%G-again"):
        place.takes(topic, f"G-newest-{topic.replace('%', '')}", count_of(place, topic))


def count_of(place: Place, topic: str) -> int:
    """So many messages of the topic are still in the log."""
    return sum(len(has) for (name, _), has in log_queues(place.store_dir).items() if name == topic)


def stored_at(line: dict[str, Any]) -> int:
    return int(line["commitLogOffset"])
