"""Topics, groups and the drive change between sends: the learnt path goes on doing what the general
path does.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from roquet.protocol.bodies.tables import GroupConfig, TopicConfig
from roquet.protocol.records.message import READ_WRITE, TRANSACTION_PREPARED, Permission
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import BINARY, JSON, ONE_WAY
from tests.broker.send_sides import SEND_CONFIG, Side, assert_same_store, batch_frame, send_frame
from tests.simulation.disk import Drive

TOPICS = ("TopicTest", "Other", "%RETRY%group")
SENT_AGAIN = 5
BODY_SIZE_MAX = 200
STORE_SETTINGS = replace(SEND_CONFIG.store, max_message_size=BODY_SIZE_MAX)
counts = st.sampled_from([1, 2, 12])
topics = st.sampled_from(TOPICS)
mostly = st.sampled_from([True, True, False])


class SendsAndChanges(RuleBasedStateMachine):
    """Two brokers, of which one learns sends, get the same requests and the same changes."""

    @initialize(is_writable=mostly, takes_transactions=mostly, flush=st.booleans())
    def start(self, is_writable: bool, takes_transactions: bool, flush: bool) -> None:
        self.runner = asyncio.Runner()
        self.sent: dict[bytes, None] = {}
        self.drives = [Drive(random.Random(1)) for _ in range(2)]
        send_config = replace(
            SEND_CONFIG,
            store=STORE_SETTINGS,
            broker_permission=READ_WRITE if is_writable else Permission.READ,
            reject_transaction_message=not takes_transactions,
        )

        async def made() -> list[Side]:
            return [
                Side(
                    Path("/store"),
                    learns=learns,
                    disk=drive.mount(),
                    send_config=send_config,
                    flush=flush,
                )
                for learns, drive in zip((True, False), self.drives, strict=True)
            ]

        self.learning, self.general = self.sides = self.runner.run(made())

    @rule(
        topic=topics,
        queue_id=st.integers(0, 5),
        count=counts,
        reads=counts,
        properties=st.fixed_dictionaries(
            {},
            optional={
                "TAGS": st.just("t"),
                "DELAY": st.just("1"),
                "WAIT": st.sampled_from(["true", "false"]),
                "TRAN_MSG": st.sampled_from(["true", "false"]),
            },
        ),
        body_size=st.sampled_from([1, BODY_SIZE_MAX, BODY_SIZE_MAX + 1]),
        sys_flag=st.sampled_from([0, 0, TRANSACTION_PREPARED]),
        header_type=st.sampled_from([JSON, BINARY]),
        code=st.sampled_from([RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2]),
        flag=st.sampled_from([0, 0, ONE_WAY]),
        reconsume_times=st.sampled_from([0, 1, 3]),
    )
    def send(
        self,
        topic: str,
        queue_id: int,
        count: int,
        reads: int,
        properties: dict[str, str],
        body_size: int,
        sys_flag: int,
        header_type: int,
        code: int,
        flag: int,
        reconsume_times: int,
    ) -> None:
        """:param count: of messages in each of the `reads`."""
        frame = send_frame(
            1000,
            queue_id,
            properties,
            b"b" * body_size,
            topic=topic,
            sys_flag=sys_flag,
            header_type=header_type,
            code=code,
            flag=flag,
            reconsume_times=reconsume_times,
        )

        self.sent[frame] = None
        for _ in range(reads):
            self._take([frame] * count)

    @rule(topic=topics, count=counts, reads=counts, size=st.sampled_from([1, 10]))
    def send_batches(self, topic: str, count: int, reads: int, size: int) -> None:
        """:param size: of the body of each message."""
        messages = [(b"b" * size, {"UNIQ_KEY": f"{number:032}"}) for number in range(count)]
        frame = batch_frame(1000, messages, topic=topic)

        self.sent[frame] = None
        for _ in range(reads):
            self._take([frame])

    def _take(self, frames: Sequence[bytes]) -> None:
        async def take() -> None:
            assert self.learning.take(*frames) == self.general.take(*frames)

        self.runner.run(take())

    def _send_again(self) -> None:
        """What was sent before may be taken otherwise after a change."""
        self._take(list(self.sent)[-SENT_AGAIN:])

    @rule(
        topic=topics,
        queues=st.sampled_from([1, 4, 8]),
        perm=st.sampled_from([6, 6, 4, 2, 0]),
        filter_type=st.sampled_from(["SINGLE_TAG", "MULTI_TAG"]),
    )
    def change_topic(self, topic: str, queues: int, perm: int, filter_type: str) -> None:
        for side in self.sides:
            side.topics.update(TopicConfig(topic, queues, queues, perm, filter_type))
        self._send_again()

    @rule(ordered=st.sets(topics))
    def order_topics(self, ordered: set[str]) -> None:
        for side in self.sides:
            side.topics.set_ordered(ordered)
        self._send_again()

    @rule(topic=topics)
    def delete_topic(self, topic: str) -> None:
        """Its queues stay: who deletes them is not part of this."""
        for side in self.sides:
            side.topics.delete(topic)
        self._send_again()

    @rule(tries=st.sampled_from([0, 2, 16]))
    def change_group(self, tries: int) -> None:
        for side in self.sides:
            side.groups.update(GroupConfig("group", retry_max_times=tries))
        self._send_again()

    @rule()
    def delete_group(self) -> None:
        for side in self.sides:
            side.groups.delete("group")
        self._send_again()

    @rule(why=st.sampled_from(["", "", "the drive is used beyond 90%"]))
    def refuse_messages(self, why: str) -> None:
        for side in self.sides:
            side.write_gate.close(why)
        self._send_again()

    @rule(failure=st.sampled_from([None, None, errno.ENOSPC]))
    def fill_drive(self, failure: int | None) -> None:
        for drive in self.drives:
            drive.failure = failure
        self._send_again()

    @invariant()
    def as_many_answers_are_held(self) -> None:
        one, other = (side.ack_gate.figures() for side in self.sides)
        assert one == other

    @invariant()
    def tables_are_the_same(self) -> None:
        one, other = ((dict(side.topics.topics), dict(side.groups.groups)) for side in self.sides)
        assert one == other

    def teardown(self) -> None:
        for drive in self.drives:
            drive.failure = None
        try:
            assert_same_store(self.learning, self.general)
        finally:
            for side in self.sides:
                side.store.abandon()
            self.runner.close()


SendsAndChanges.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSendsAndChanges = SendsAndChanges.TestCase


def taken_by(folder: Path, *steps: bytes | TopicConfig | GroupConfig) -> list[Side]:
    """Sides that took the same sends, one a read, and changes of tables in between.

    One of them learns. All that they did is compared.
    """

    async def took(learns: bool) -> tuple[Side, list[bytes]]:
        send_config = replace(SEND_CONFIG, store=STORE_SETTINGS)
        side = Side(folder / str(learns), learns=learns, send_config=send_config)
        answers: list[bytes] = []
        for step in steps:
            if isinstance(step, TopicConfig):
                side.topics.update(step)
            elif isinstance(step, GroupConfig):
                side.groups.update(step)
            else:
                answers += side.take(step)
        return side, answers

    (learning, answers), (general, expected) = (
        asyncio.run(took(learns)) for learns in (True, False)
    )
    assert answers == expected
    assert_same_store(learning, general)
    return [learning, general]


def queues_of(sides: list[Side]) -> dict[tuple[str, int], int]:
    """How many messages each queue of the sides has; closes their stores."""
    written = {(queue.topic, queue.queue_id): queue.max_offset for queue in sides[0].store.queues}
    for side in sides:
        side.store.abandon()
    return written


def test_a_retry_topics_sends_see_that_the_group_may_try_less_often(tmp_path: Path) -> None:
    frame = send_frame(1000, 0, {}, topic="%RETRY%group", reconsume_times=3)
    fewer = GroupConfig("group", retry_max_times=2)

    sides = taken_by(tmp_path, *[frame] * 3, fewer, *[frame] * 3)

    assert queues_of(sides) == {("%RETRY%group", 0): 3, ("%DLQ%group", 0): 3}


def test_a_retry_topics_sends_take_the_fast_path_as_long_as_no_table_changes(
    tmp_path: Path,
) -> None:
    frame = send_frame(1000, 0, {}, topic="%RETRY%group", reconsume_times=3)

    sides = taken_by(tmp_path, *[frame] * 9)

    assert sides[0].sent_slowly < sides[1].sent_slowly == 9
    assert queues_of(sides) == {("%RETRY%group", 0): 9}


def test_dead_letters_have_one_queue_whatever_queue_their_sends_name(tmp_path: Path) -> None:
    retries = TopicConfig("%RETRY%group", 4, 4)
    frames = [
        send_frame(1000, number % 4, {}, topic=retries.name, reconsume_times=16)
        for number in range(12)
    ]

    sides = taken_by(tmp_path, retries, *frames)

    assert queues_of(sides) == {("%DLQ%group", 0): 12}


def test_a_queue_that_a_topic_has_lost_takes_no_message(tmp_path: Path) -> None:
    last, first = send_frame(1000, 7, {}), send_frame(1000, 0, {})
    fewer = TopicConfig("TopicTest", 4, 4)

    sides = taken_by(
        tmp_path, TopicConfig("TopicTest", 8, 8), *[last] * 3, fewer, *[first] * 3, last
    )

    assert queues_of(sides) == {("TopicTest", 7): 3, ("TopicTest", 0): 3}


def test_a_body_that_is_too_large_is_refused_under_a_known_header_too(tmp_path: Path) -> None:
    frames = [
        send_frame(1000, 0, {}, b"b" * size) for size in (1, 1, 1, BODY_SIZE_MAX, BODY_SIZE_MAX + 1)
    ]

    assert queues_of(taken_by(tmp_path, *frames)) == {("TopicTest", 0): 4}
