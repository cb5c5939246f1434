"""The fast path and the slow path of pulls: same answers, same offsets, same held pulls."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import pytest

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.config.filter import FilterSettings
from roquet.broker.config.store import BrokerRole, ReplicationSettings
from roquet.protocol.filters.tags import SQL92, TAG
from roquet.protocol.headers.pull import PullHeader
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import BINARY, JSON, Command, decode
from tests.broker.pulls import FORBID, PER_QUEUE, QUEUES, USUAL, Side, pull_frame

FILTERING = BrokerConfig(filters=FilterSettings(enable_property_filter=True))


def compare(frames: list[bytes], learning: Side, by_slow_path: Side, *, per_read: int = 3) -> bytes:
    """Give frames to both sides, and compare all they did; the answers."""
    reads = [frames[at : at + per_read] for at in range(0, len(frames), per_read)]
    answers = [answer for read in reads for answer in learning.pull(*read)]
    assert answers == [answer for read in reads for answer in by_slow_path.pull(*read)]
    assert learning.offsets.to_table() == by_slow_path.offsets.to_table()
    assert learning.held() == by_slow_path.held()
    return b"".join(answers)


def random_pull(chance: random.Random) -> PullHeader:
    subscription, plan = chance.choice((("*", TAG), ("*", TAG), ("a", TAG), ("TAGS = 'b'", SQL92)))
    return replace(
        USUAL,
        queue_id=chance.choice((*range(QUEUES), QUEUES, -1)),
        queue_offset=chance.choice((*range(PER_QUEUE), PER_QUEUE, PER_QUEUE + 1, -1)),
        commit_offset=chance.randrange(PER_QUEUE),
        max_msg_nums=chance.choice((1, 32)),
        sys_flag=chance.choice((3, 3, 3, 2, 7)),
        subscription=subscription,
        expression_type=plan,
        consumer_group=chance.choice(("group", "group", "group", "other")),
    )


@pytest.mark.parametrize("header_type", [JSON, BINARY])
@pytest.mark.parametrize("is_slave", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_any_pulls_are_answered_as_on_the_general_path(
    seed: int, header_type: int, is_slave: bool
) -> None:
    async def run() -> int:
        role = BrokerRole.SLAVE if is_slave else BrokerRole.ASYNC_MASTER
        config = replace(FILTERING, replication=ReplicationSettings(broker_role=role))
        learning = Side(config)
        by_slow_path = Side(config, learns=False)
        chance = random.Random(seed)
        frames = [
            pull_frame(number, random_pull(chance), header_type) for number in range(100, 500)
        ]
        compare(frames, learning, by_slow_path)
        return learning.templates()

    assert asyncio.run(run()) > 10


@pytest.mark.parametrize("header_type", [JSON, BINARY])
def test_what_changes_meanwhile_counts_for_learnt_pulls_too(header_type: int) -> None:
    async def run() -> None:
        learning = Side(FILTERING)
        by_slow_path = Side(FILTERING, learns=False)
        frames = [
            pull_frame(n, replace(USUAL, queue_offset=n, commit_offset=n), header_type)
            for n in range(20, 40)
        ]
        everything = compare(frames, learning, by_slow_path)
        for side in (learning, by_slow_path):
            side.subscribe("a", version=2)
        by_tag = compare(frames, learning, by_slow_path)
        for side in (learning, by_slow_path):
            side.subscribe("TAGS = 'a' OR TAGS = 'b'", version=3, kind=SQL92)
        assert compare(frames, learning, by_slow_path) == everything != by_tag
        for side in (learning, by_slow_path):
            side.subscribe("TAGS = 'a'", version=4, kind=SQL92)
        assert compare(frames, learning, by_slow_path) == by_tag
        for side in (learning, by_slow_path):
            side.forbid_reading()
        refusals = compare(frames[:1], learning, by_slow_path)
        assert decode(refusals).code == ResponseCode.NO_PERMISSION

    asyncio.run(run())


@pytest.mark.parametrize("header_type", [JSON, BINARY])
def test_what_a_request_changes_counts_for_pulls_of_the_same_read(header_type: int) -> None:
    async def run() -> None:
        learning = Side()
        by_slow_path = Side(learns=False)
        frames = [pull_frame(n, replace(USUAL, queue_offset=n), header_type) for n in range(1, 9)]
        compare(frames, learning, by_slow_path)
        forbid = Command(FORBID, {}, b"", 99, header_type=header_type).encode()[4:]
        answers = compare([*frames, forbid, *frames], learning, by_slow_path, per_read=17)
        assert answers.count(b"may not be read") == len(frames)

    asyncio.run(run())


@pytest.mark.parametrize("header_type", [JSON, BINARY])
def test_no_changed_byte_makes_a_learnt_pull_mean_something_else(header_type: int) -> None:
    async def run() -> None:
        learning = Side()
        by_slow_path = Side(learns=False)
        frame = pull_frame(
            1234, replace(USUAL, queue_id=3, queue_offset=45, commit_offset=40), header_type
        )
        compare([frame, frame], learning, by_slow_path, per_read=1)
        assert learning.templates() == 1
        chance = random.Random(header_type)
        for at in range(4, len(frame)):
            for byte in (*b'0 -9"x', chance.randrange(256)):
                changed = frame[:at] + bytes([byte]) + frame[at + 1 :]
                assert learning.pull(changed) == by_slow_path.pull(changed)
        assert learning.offsets.to_table() == by_slow_path.offsets.to_table()

    asyncio.run(run())


@pytest.mark.parametrize("header_type", [JSON, BINARY])
@pytest.mark.parametrize(
    "number", ["queueId", "queueOffset", "commitOffset", "maxMsgNums", "subVersion"]
)
def test_a_number_at_or_beyond_javas_range_is_answered_as_on_the_general_path(
    number: str, header_type: int
) -> None:
    async def run() -> None:
        learning = Side()
        by_slow_path = Side(learns=False)
        usual = decode(pull_frame(1234, USUAL, header_type))
        for text in (
            *(
                "1",
                "000000000001",
                "2147483647",
                "2147483648",
                "9999999999",
                "+1",
                "1_0",
                "-1",
                "-2147483649",
            ),
            *(
                "0000000000000000001",
                "9223372036854775807",
                "9223372036854775808",
                "9999999999999999999",
            ),
        ):
            usual.fields[number] = text
            compare([usual.encode()[4:]] * 4, learning, by_slow_path, per_read=1)

    asyncio.run(run())


def test_a_log_file_is_looked_at_once_for_all_pulls_of_a_read_and_again_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        side = Side()
        frames = [
            pull_frame(n, replace(USUAL, queue_id=n % 4, queue_offset=PER_QUEUE - 8))
            for n in range(1, 9)
        ]
        for _ in range(2):  # the first pull is the one that is learnt from
            side.pull(*frames)
        assert side.templates() > 0
        log, looks = side.store.log, 0
        file = log._segments.file_at(log.end - 1)
        assert file is not None
        look = file.require_whole

        def counted() -> None:
            nonlocal looks
            looks += 1
            look()

        monkeypatch.setattr(file, "require_whole", counted)
        for reads in (1, 2):
            answers = b"".join(side.pull(*frames))
            assert answers.count(b'"code":0,') == len(frames)
            assert looks == reads
        side.drive.lost_from[Path(f"/s/commitlog/{log.end - log.end % log.file_size:020d}")] = 0
        assert b"".join(side.pull(*frames)).count(b'"code":1,') == len(frames)

    asyncio.run(run())
