"""The learnt path and the general path are one: same records, same answers, for any frame."""

from __future__ import annotations

import asyncio
import errno
import random
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from roquet.protocol.bodies.tables import TopicConfig
from roquet.protocol.headers.send import SendHeader, SendHeaderV2
from roquet.protocol.records.batch import batch_item
from roquet.protocol.records.record import decode
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import BINARY, JSON, ONE_WAY, Command
from roquet.transport.handling import SlowPath
from tests.broker.send_sides import (
    NOW_MS,
    Side,
    assert_same_store,
    batch_frame,
    run_both,
    send_frame,
)
from tests.simulation.disk import Drive

UNIQUE_KEY = "AC110001{:024X}"
names = st.sampled_from(
    ["a", "b", "%", 'quote"d', "back\\slash", "ünïcode", "opaque", '"opaque":7', "UNIQ_KEY"]
)
texts = st.one_of(
    st.sampled_from(
        [
            "x",
            "tag%d",
            'say "hi"',
            "a\\b",
            "schlüssel",
            "k1 k2",
            " k1  k2 ",
            "0",
            '","opaque":1,"',
            "100%",
        ]
    ),
    st.text(
        st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]),
        min_size=1,
        max_size=12,
    ),
)
properties = st.fixed_dictionaries(
    {},
    optional={
        "KEYS": texts,
        "TAGS": texts,
        "WAIT": st.sampled_from(["true", "false"]),
        "UNIQ_KEY": st.integers(0, 1 << 90).map(UNIQUE_KEY.format),
        "CLUSTER": texts,
        "color": texts,
        "DELAY": st.sampled_from(["0", "1", "2", "9", "-1", "soon", "+1"]),
        "REAL_QID": st.sampled_from(["0", "3", "x"]),
    },
)
sends = st.builds(
    send_frame,
    st.integers(0, 12),
    st.sampled_from([0, 1, 2, 3, 3, 7, 10, 100]),
    st.one_of(properties, st.dictionaries(names, texts, max_size=3)),
    st.binary(max_size=20),
    topic=st.sampled_from(["TopicTest", "TBW102", "bad topic", "%RETRY%group"]),
    header_type=st.sampled_from([JSON, BINARY]),
    code=st.sampled_from([RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2]),
    born_ms=st.sampled_from([NOW_MS, NOW_MS + 1, 5]),
    flag=st.sampled_from([0, 0, ONE_WAY]),
)


read_sizes = st.lists(st.sampled_from([1, 2, 7, 30]), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(st.lists(sends, min_size=1, max_size=12), read_sizes)
def test_any_sends_come_out_the_same(frames: list[bytes], reads: list[int]) -> None:
    run_both([*frames, *frames], reads)


usual_sends = st.builds(
    send_frame,
    st.integers(1000, 9999),
    st.sampled_from([0, 1, 2, 3, 3, 7, 10]),
    st.fixed_dictionaries(
        {
            "KEYS": st.sampled_from(["k1", "k2", "k1 k2", "k3-k4", "ab ab", "äö"]),
            "UNIQ_KEY": st.integers(0, 1 << 90).map(UNIQUE_KEY.format),
            "TAGS": st.sampled_from(["a", "b", "c", "*"]),
        },
        optional={"DELAY": st.sampled_from(["1", "2"])},
    ),
    st.sampled_from([b"", b"aaaa", b"bbbb", b"cccc", b"longer"]),
    header_type=st.sampled_from([JSON, BINARY]),
    born_ms=st.sampled_from([NOW_MS, NOW_MS + 1, 5]),
    sys_flag=st.sampled_from([0, 0, 1, 4]),
    flag=st.sampled_from([0, 0, 0, ONE_WAY]),
)


def test_prepared_messages_take_no_place_in_a_queue_however_many_come() -> None:
    pairs = [{"UNIQ_KEY": UNIQUE_KEY.format(n)} for n in range(20)]
    run_both([send_frame(1000, 1, pair, sys_flag=4) for pair in pairs], [1, 1, 18])


@settings(max_examples=60, deadline=None)
@given(st.lists(usual_sends, min_size=30, max_size=60), read_sizes)
def test_runs_of_usual_sends_come_out_the_same(frames: list[bytes], reads: list[int]) -> None:
    run_both([*frames, *frames], [*reads, 60])


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from([JSON, BINARY]),
    properties,
    st.lists(
        st.tuples(st.integers(0, 4000), st.binary(min_size=1, max_size=3)), min_size=1, max_size=20
    ),
)
def test_any_bytes_in_a_learnt_frame_come_out_the_same(
    header_type: int, pairs: dict[str, str], changes: list[tuple[int, bytes]]
) -> None:
    frame = send_frame(1234, 2, pairs, header_type=header_type)
    frames = [frame, frame]
    for at, data in changes:
        changed = bytearray(frame)
        at %= len(frame) - len(data)
        changed[at : at + len(data)] = data
        frames += [bytes(changed), frame]
    run_both(frames, [1, 1, 1, 40])


@pytest.mark.parametrize("header_type", [JSON, BINARY])
def test_a_tag_that_is_no_text_in_a_run_comes_out_the_same(header_type: int) -> None:
    frame = send_frame(1234, 2, {"TAGS": "xyz", "KEYS": "k"}, header_type=header_type)
    damaged = frame.replace(b"xyz", b"x\x80z")
    assert damaged != frame
    run_both([frame, frame, *[frame] * 5, damaged, *[frame] * 5], [1, 1, 40])


NUMBER_TEXTS = [
    *(
        "3",
        "1000000000",
        "2147483647",
        "2147483648",
        "9999999999",
        "0000000003",
        "+000000003",
        "1_00000000",
    ),
    *("999999999999999999", "1000000000000000000", "9223372036854775807", "9223372036854775808"),
    *(
        "9999999999999999999",
        "-1",
        "-2147483648",
        "-2147483649",
        "-9223372036854775808",
        "-9223372036854775809",
    ),
]


@pytest.mark.parametrize("header_type", [JSON, BINARY])
@pytest.mark.parametrize(
    "code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE]
)
@pytest.mark.parametrize(
    "number", ["queue_id", "born_timestamp", "flag", "sys_flag", "reconsume_times"]
)
def test_a_number_at_or_beyond_javas_range_comes_out_the_same(
    header_type: int, code: int, number: str
) -> None:
    """Each after one of the same length that is learnt where that may be."""
    plan = SendHeader if code == RequestCode.SEND_MESSAGE else SendHeaderV2
    is_batch = code == RequestCode.SEND_BATCH_MESSAGE
    header = plan("group", "TopicTest", 3, 0, NOW_MS, 0, properties="WAIT\x01true", batch=is_batch)
    wire = plan.SPELLING.get(number) or {
        "queue_id": "queueId",
        "born_timestamp": "bornTimestamp",
    }.get(number, number)
    wire = {"sys_flag": "sysFlag", "reconsume_times": "reconsumeTimes"}.get(wire, wire)
    body = batch_item(0, b"body", b"UNIQ_KEY\x01" + b"k" * 32) if is_batch else b"body"
    frames = []
    for text in NUMBER_TEXTS:
        command = Command(code, {**header.write(), wire: text}, body, 1234, header_type=header_type)
        frames += [command.encode()[4:]] * 7
    learning, _ = run_both(frames, [1])
    assert learning.templates
    run_both([*frames[::7], *frames[::-7], *frames], [1, 1, 3, 40])


def test_an_opaque_beyond_javas_range_comes_out_the_same() -> None:
    frames = [
        send_frame(opaque, 1, {"UNIQ_KEY": UNIQUE_KEY.format(1)})
        for opaque in (1_000_000_000, 2_147_483_647)
    ]
    beyond = [
        send_frame(opaque, 1, {"UNIQ_KEY": UNIQUE_KEY.format(1)})
        for opaque in (2_147_483_648, 9_999_999_999)
    ]
    for reads in ([1], [8]):
        learning, _ = run_both([*frames * 4, *(frames + beyond) * 4], [1, 1, *reads])
        assert learning.templates == 1


@pytest.mark.parametrize("flag", [0, -1, (1 << 31) - 1, -(1 << 31)])
@pytest.mark.parametrize("size", [0, -1, 21, 22, 1 << 20, (1 << 31) - 1, -(1 << 31)])
@pytest.mark.parametrize("at", [0, 16, 20 + 4])
def test_any_numbers_inside_a_batch_come_out_the_same(flag: int, size: int, at: int) -> None:
    """Its message's size, the size of the body, or that of the properties (two bytes)."""
    item = batch_item(flag, b"body", b"UNIQ_KEY\x01" + b"k" * 32)
    number = size.to_bytes(4, "big", signed=True)
    changed = item[:at] + (number if at < 20 else number[2:]) + item[at + (4 if at < 20 else 2) :]
    header = SendHeaderV2(
        "group", "TopicTest", 1, 0, NOW_MS, 0, properties="WAIT\x01true", batch=True
    )
    frames = [
        Command(
            RequestCode.SEND_BATCH_MESSAGE, header.write(), body, 1234, header_type=BINARY
        ).encode()[4:]
        for body in (item, item, item + changed, changed, item * 3, changed + item, item)
    ]
    run_both(frames * 2, [1, 1, 3])


@pytest.mark.parametrize("header_type", [JSON, BINARY])
@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
@pytest.mark.parametrize("more", [{}, {"DELAY": "2"}])
def test_a_producers_usual_sends_are_learnt_once(
    header_type: int, code: int, more: dict[str, str]
) -> None:
    frames = [
        send_frame(
            1000 + n,
            n % 4,
            {
                "KEYS": f"key{n:04}",
                "UNIQ_KEY": UNIQUE_KEY.format(n),
                "WAIT": "true",
                "TAGS": f"t{n % 7}",
                **more,
            },
            b"body %d" % n,
            header_type=header_type,
            code=code,
            born_ms=NOW_MS + n,
        )
        for n in range(50)
    ]
    for reads in ([1], [20]):
        learning, _ = run_both(frames, [1, 1, *reads])
        assert learning.templates == 1


@pytest.mark.parametrize("header_type", [JSON, BINARY])
def test_one_way_sends_are_learnt_and_told_nothing_even_where_there_is_no_room(
    header_type: int,
) -> None:
    frames = [
        send_frame(
            1000, 1, {"UNIQ_KEY": UNIQUE_KEY.format(n)}, flag=ONE_WAY, header_type=header_type
        )
        for n in range(14)
    ]

    async def run() -> None:
        drive = Drive(random.Random(1))
        side = Side(Path("/store"), learns=True, entries_per_file=12, disk=drive.mount())
        assert [side.take(frame) for frame in frames[:2]] == [[], []]
        drive.failure = errno.ENOSPC
        assert side.take(*frames[2:]) == []
        drive.failure = None
        assert (side.templates, side.store.max_offset("TopicTest", 1)) == (1, 12), (
            "a file of the queue has 12 entries"
        )
        by_slow_path = side.sent_slowly
        assert (side.take(*frames[2:]), side.take(frames[2])) == ([], [])
        assert (side.store.max_offset("TopicTest", 1), side.sent_slowly) == (
            25,
            by_slow_path,
        )
        side.store.abandon()

    asyncio.run(run())


batches = st.builds(
    batch_frame,
    st.integers(10, 12),
    st.one_of(
        st.lists(st.tuples(st.binary(min_size=1, max_size=9), properties), max_size=5),
        st.lists(
            st.tuples(
                st.binary(min_size=4, max_size=4),
                st.fixed_dictionaries(
                    {"UNIQ_KEY": st.integers(0, 99).map(UNIQUE_KEY.format), "TAGS": st.just("t")}
                ),
            ),
            max_size=5,
        ),
    ),
    batch_key=st.sampled_from(["", UNIQUE_KEY.format(7), UNIQUE_KEY.format(8)]),
    header_type=st.sampled_from([JSON, BINARY]),
)


@settings(max_examples=80)
@given(st.lists(batches, min_size=1, max_size=6), read_sizes)
def test_any_batches_come_out_the_same(frames: list[bytes], reads: list[int]) -> None:
    run_both([*frames, *frames], reads)


@settings(max_examples=80)
@example([(137, b" ")])  # in the properties of the batch
@given(
    st.lists(
        st.tuples(st.integers(0, 4000), st.binary(min_size=1, max_size=3)), min_size=1, max_size=20
    )
)
def test_any_bytes_in_a_learnt_batch_come_out_the_same(changes: list[tuple[int, bytes]]) -> None:
    messages = [
        (b"body %d" % n, {"UNIQ_KEY": UNIQUE_KEY.format(n), "KEYS": "k", "WAIT": "true"})
        for n in range(4)
    ]
    frame = batch_frame(1234, messages)
    frames = [frame, frame]
    for at, data in changes:
        changed = bytearray(frame)
        at %= len(frame) - len(data)
        changed[at : at + len(data)] = data
        frames += [bytes(changed), frame]
    run_both(frames, [1, 1, 1, 40])


@pytest.mark.parametrize("header_type", [JSON, BINARY])
def test_a_producers_usual_batches_are_learnt_once(header_type: int) -> None:
    frames = [
        batch_frame(
            1000 + n,
            [
                (b"body %04d" % (n + k), {"UNIQ_KEY": UNIQUE_KEY.format(n + k), "TAGS": "t"})
                for k in range(16)
            ],
            batch_key=UNIQUE_KEY.format(n),
            header_type=header_type,
        )
        for n in range(50)
    ]
    for reads in ([1], [20]):
        learning, _ = run_both(frames, [1, 1, *reads])
        assert learning.templates == 1


def test_a_changed_topic_is_learnt_anew() -> None:
    async def run(folder: Path) -> None:
        side = Side(folder, learns=True)
        frame = send_frame(1, 3, {"UNIQ_KEY": UNIQUE_KEY.format(1)})
        for _ in range(3):
            side.take(frame)
        side.topics.update(TopicConfig("TopicTest", 2, 2))
        (answer,) = side.take(frame)
        assert b"topic TopicTest has no queue 3" in answer
        side.store.abandon()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))


@pytest.mark.parametrize("is_batch", [False, True])
def test_of_a_run_that_finds_no_room_the_first_ones_that_do_are_taken(is_batch: bool) -> None:
    """As on the general path. The others are taken once there is room, without a gap in log or
    queue.
    """

    def frames(first: int, count: int) -> list[bytes]:
        if is_batch:
            pairs = [
                [{"UNIQ_KEY": UNIQUE_KEY.format(n * 2 + k)} for k in (0, 1)]
                for n in range(first, first + count)
            ]
            return [batch_frame(1000, [(b"body", pair) for pair in two]) for two in pairs]
        return [
            send_frame(1000, 1, {"UNIQ_KEY": UNIQUE_KEY.format(n)})
            for n in range(first, first + count)
        ]

    async def run() -> None:
        sides, refusals = [], []
        for learns in (True, False):
            drive = Drive(random.Random(1))
            side = Side(Path("/store"), learns=learns, entries_per_file=12, disk=drive.mount())
            for frame in frames(0, 2):
                side.take(frame)
            drive.failure = errno.ENOSPC
            refusals.append(side.take(*frames(2, 12)))
            drive.failure = None
            answers = side.take(*frames(2, 12))
            assert [b'"code":0' in answer for answer in answers] == [True] * 12
            sides.append(side)
        learning, by_slow_path = sides
        refused = [b"No space left" in refusal for refusal in refusals[0]]
        assert refusals[0] == refusals[1]
        assert refused == sorted(refused), "those that find room are the first ones"
        assert any(refused)
        assert_same_store(learning, by_slow_path)
        records = [decode(data) for _, data in learning.store.log.walk(learning.store.log.start)]
        taken = 14 + refused.count(False)
        assert [record.queue_offset for record in records] == list(
            range(taken * (2 if is_batch else 1))
        )
        for side in sides:
            side.store.abandon()

    asyncio.run(run())


def test_a_full_drive_refuses_what_was_learnt_too() -> None:
    async def run(folder: Path) -> None:
        side = Side(folder, learns=True)
        frames = [send_frame(1000, 1, {"UNIQ_KEY": UNIQUE_KEY.format(n)}) for n in range(8)]
        for frame in frames:
            side.take(frame)
        assert side.templates
        end = side.store.log.end
        side.write_gate.close("the drive is used beyond 90%")
        answers = side.take(*frames)
        assert [b"used beyond 90%" in answer and b'"code":14' in answer for answer in answers] == [
            True
        ] * 8
        assert side.store.log.end == end
        side.store.abandon()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))


class Watching:
    """A shortcut that knows nothing, and notes what it is given."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def take(self, frames: Iterable[bytes], slow_path: SlowPath) -> list[bytes]:
        known = list(frames)
        self.seen += known
        return [answer for frame in known if (answer := slow_path(frame)) is not None]


def test_sends_come_in_whole_reads_even_where_another_shortcut_was_learnt_before(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        side = Side(tmp_path, learns=True, also={Watching: lambda _: Watching()})
        watching = side.connection.fast_paths.get(Watching)
        assert watching is not None
        frames = [
            send_frame(opaque, 1, {"UNIQ_KEY": f"{opaque:032X}"}, header_type=BINARY)
            for opaque in range(12)
        ]
        side.take(*frames[:1])
        side.take(*frames[1:2])
        watching.seen.clear()

        side.take(*frames[2:])

        assert watching.seen == []
        assert side.store.max_offset("TopicTest", 1) == 12

    asyncio.run(run())


def test_the_first_message_of_each_queue_goes_the_general_way_which_makes_its_file(
    tmp_path: Path,
) -> None:
    """In a run of learnt sends the files of all its queues would be made at once."""

    async def run() -> None:
        side = Side(tmp_path, learns=True)
        side.take(send_frame(998, 0, {}))
        side.take(send_frame(999, 0, {}))
        frames = [send_frame(number, number % 4, {}) for number in range(100, 108)]
        for new_queues in (3, 0):
            before = side.sent_slowly
            assert len(side.take(*frames)) == 8
            assert side.sent_slowly - before == new_queues
        assert side.templates == 1
        side.store.abandon()

    asyncio.run(run())
