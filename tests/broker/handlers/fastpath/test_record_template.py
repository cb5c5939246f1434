"""What similar sends have in common as stored, and which of them can be stored in columns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from roquet.broker.handlers.batches import Batches
from roquet.broker.handlers.fastpath.record_template import RecordTemplate, SendColumns
from roquet.broker.handlers.send_executor import SendExecutor
from roquet.broker.handlers.send_planner import SendPlanner
from roquet.errors import Refused
from roquet.protocol.bodies.tables import TopicConfig
from roquet.protocol.records.batch import batch_item
from roquet.protocol.records.message import join_properties, tag_code
from roquet.protocol.records.uniform import UniformBatch
from roquet.protocol.remoting.command import BINARY, JSON, decode
from tests.broker.send_sides import NOW_MS, Side, batch_frame, send_frame

VARIABLE: Final = ("UNIQ_KEY", "KEYS", "TAGS")
QUEUE_ID: Final = 1
BODY_SIZE_MAX: Final = 4 << 20


class Templates:
    """Record templates of one broker."""

    def __init__(self, folder: Path) -> None:
        self.side = Side(folder, learns=False)
        self._planner = SendPlanner(self.side.send_context)
        self._executor = SendExecutor(self.side.send_context)
        self._batches = Batches(self.side.send_context)

    def template(self, frame: bytes) -> RecordTemplate:
        """The template that is made of a send, which is stored first."""
        self.side.take(frame)
        plan, values = self._planner.plan(decode(frame), self.side.connection)
        names = [name for name in values.pairs if name in VARIABLE]
        return RecordTemplate(plan, values, names, self._executor, self._batches)

    def of(self, properties: dict[str, str], **fields: int) -> RecordTemplate:
        return self.template(send_frame(1, QUEUE_ID, properties, **fields))  # type: ignore[arg-type]

    def stored(self, properties: dict[str, str]) -> bytes:
        """The properties that the slow path stores."""
        plan, values = self._planner.plan(
            decode(send_frame(1, QUEUE_ID, properties)), self.side.connection
        )
        return plan.stored_properties(values.pairs, QUEUE_ID)


@pytest.fixture
async def templates(tmp_path: Path) -> AsyncIterator[Templates]:
    templates = Templates(tmp_path)
    yield templates
    templates.side.store.abandon()


def columns(
    template: RecordTemplate,
    texts: Sequence[tuple[bytes, ...]],
    bodies: Sequence[bytes] = (),
    *,
    opaque: bytes = b"7",
    born: bytes = b"%d" % NOW_MS,
) -> SendColumns:
    """A run of sends to one queue: the texts of each, and its body."""
    queue = template.find_queue(b"%d" % QUEUE_ID)
    assert queue is not None
    return SendColumns.of_run(
        [
            ((opaque, b"%d" % QUEUE_ID, born, *each), queue, b"header" + body, len(b"header"))
            for each, body in zip(texts, bodies or [b"body"] * len(texts), strict=True)
        ]
    )


def all_properties(messages: UniformBatch) -> list[bytes]:
    """The properties of each message of a run."""
    found = []
    for number in range(len(messages)):
        properties = bytearray(messages.properties)
        for at, rows in messages.variable_parts:
            row = rows[number].tobytes()
            properties[at : at + len(row)] = row
        found.append(bytes(properties))
    return found


# properties


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"a": "100%", "%b": "%d", "ünï": "cödé"},
        {"WAIT": "true", "CLUSTER": "other"},
        {"DELAY": "2"},
    ],
)
async def test_properties_are_those_of_the_slow_path(
    templates: Templates, more: dict[str, str]
) -> None:
    template = templates.of({"KEYS": "k1", **more, "UNIQ_KEY": "AAAA", "TAGS": "t"})

    stored = template.properties([b"k2", b"BBBB", b"u"], b"%d" % QUEUE_ID)

    assert template.is_usable
    assert stored == templates.stored({"KEYS": "k2", **more, "UNIQ_KEY": "BBBB", "TAGS": "u"})


async def test_a_template_whose_properties_do_not_come_out_as_stored_is_not_usable(
    templates: Templates,
) -> None:
    """The queue of a delayed message stands where the client has put it, not behind the keys."""
    assert templates.of({"KEYS": "k", "DELAY": "2"}).is_usable
    assert not templates.of({"REAL_QID": "1", "KEYS": "k", "DELAY": "2"}).is_usable


async def test_sends_that_differ_in_texts_of_one_size_have_one_identity(
    templates: Templates,
) -> None:
    known = templates.of({"KEYS": "k1", "a": "b"}).identity

    assert templates.of({"KEYS": "k2", "a": "b"}).identity == known
    for other in {"KEYS": "k10", "a": "b"}, {"KEYS": "k1", "a": "c"}, {"TAGS": "k1", "a": "b"}:
        assert templates.of(other).identity != known
    assert templates.of({"KEYS": "k1", "a": "b"}, sys_flag=1).identity != known


# queues


async def test_a_queue_is_kept_once_it_has_a_file(templates: Templates) -> None:
    template = templates.of({})
    assert template.find_queue(b"2") is None
    assert template.queues == {}

    templates.side.take(send_frame(1, 2, {}))

    queue = template.find_queue(b"2")
    assert queue is not None
    assert (queue.topic, queue.queue_id) == ("TopicTest", 2)
    assert template.queues == {b"2": queue}


@pytest.mark.parametrize("queue_id", [b"01", b"+1", b"-1", b"1_", b" 1", b"4", b"99999999999"])
async def test_what_is_no_queue_of_the_topic_is_left_to_the_slow_path(
    templates: Templates, queue_id: bytes
) -> None:
    template = templates.of({})
    assert template.find_queue(b"1") is not None

    assert template.find_queue(queue_id) is None
    assert [*template.queues] == [b"1"]


async def test_a_queue_that_the_topic_has_no_more_is_left_to_the_slow_path(
    templates: Templates,
) -> None:
    templates.side.take(send_frame(1, 3, {}))
    templates.side.topics.update(TopicConfig("TopicTest", 2, 2))

    assert templates.of({}).find_queue(b"3") is None


async def test_delayed_messages_wait_in_the_queue_of_their_level(templates: Templates) -> None:
    queue = templates.of({"DELAY": "2"}).find_queue(b"3")

    assert queue is not None
    assert (queue.topic, queue.queue_id) == ("SCHEDULE_TOPIC_XXXX", 1)


# runs


@pytest.mark.parametrize("delay", [{}, {"DELAY": "2"}])
async def test_a_run_is_stored_as_its_messages_would_be(
    templates: Templates, delay: dict[str, str]
) -> None:
    template = templates.of({"UNIQ_KEY": "AAAA", "KEYS": "k1", "TAGS": "t", **delay})
    texts = [(b"BBBB", b"k2", b"u"), (b"CCCC", b"k3", b"v")]

    messages = template.uniform(columns(template, texts, [b"one", b"two"]))

    assert messages is not None
    assert all_properties(messages) == [
        templates.stored(dict(zip(VARIABLE, (text.decode() for text in each), strict=True)) | delay)
        for each in texts
    ]
    assert [row.tobytes() for row in messages.bodies] == [b"one", b"two"]
    assert [*messages.keys] == [b"BBBBCCCC", b"k2k3"]
    assert messages.tag_codes == [tag_code("u"), tag_code("v")]
    assert [*messages.born_ms] == [NOW_MS, NOW_MS]


async def test_the_size_of_a_run_is_what_its_records_take_in_the_log(templates: Templates) -> None:
    template, log = templates.of({"KEYS": "k1"}), templates.side.store.log
    messages = template.uniform(columns(template, [(b"k2",)] * 3))
    before = log.end

    templates.side.take(send_frame(1, QUEUE_ID, {"KEYS": "k2"}))

    assert messages is not None
    assert template.size_in_log(messages) == 3 * (log.end - before)


async def test_messages_with_several_keys_are_not_stored_in_columns(templates: Templates) -> None:
    template = templates.of({"KEYS": "k1 k2"})

    assert template.uniform(columns(template, [(b"k1k2k",)])) is not None
    assert template.uniform(columns(template, [(b"k1 k2",)])) is None


@pytest.mark.parametrize("header_type", [JSON, BINARY])
async def test_values_that_may_mean_something_else_are_left_to_the_slow_path(
    templates: Templates, header_type: int
) -> None:
    template = templates.of({"KEYS": "k1"}, header_type=header_type)
    texts = [(b"k2",), (b"k3",)]
    assert template.uniform(columns(template, texts)) is not None

    assert template.uniform(columns(template, texts, born=b"1_000")) is None
    assert template.uniform(columns(template, [(b"k2",), (b'k"',)])) is None
    assert template.uniform(columns(template, [(b"k2",), (b"\x01k",)])) is None
    by_opaque = template.uniform(columns(template, texts, opaque=b"+007"))
    assert (by_opaque is None) is (header_type == JSON), (
        "four bytes mean a number whatever they are"
    )


async def test_bodies_beyond_the_limit_are_refused(templates: Templates) -> None:
    template = templates.of({})
    fitting, too_large = bytes(BODY_SIZE_MAX), bytes(BODY_SIZE_MAX + 1)

    assert template.uniform(columns(template, [()], [fitting])) is not None
    with pytest.raises(Refused, match="maxMessageSize allows"):
        template.uniform(columns(template, [()], [too_large]))


# batches


def batch_of(*messages: tuple[bytes, dict[str, str]]) -> bytes:
    return b"".join(
        batch_item(0, body, join_properties(pairs).encode()) for body, pairs in messages
    )


def keyed(body: bytes, key: str, **more: str) -> tuple[bytes, dict[str, str]]:
    return body, {"UNIQ_KEY": key, **more}


async def test_batches_of_one_layout_are_stored_as_one_run(templates: Templates) -> None:
    template = templates.template(batch_frame(1, [keyed(b"old", "ZZ", TAGS="t", KEYS="k")]))
    batches = [
        batch_of(*(keyed(b"%d-%d" % (n, k), f"K{2 * n + k}", TAGS="t", KEYS="k") for k in (0, 1)))
        for n in range(3)
    ]

    messages = template.uniform(columns(template, [()] * 3, batches))

    assert template.is_usable
    assert messages is not None
    assert [row.tobytes() for row in messages.bodies] == [
        b"%d-%d" % (n, k) for n in range(3) for k in (0, 1)
    ]
    shared = b"\x02TAGS\x01t\x02KEYS\x01k\x02WAIT\x01true\x02CLUSTER\x01C"
    assert all_properties(messages) == [b"UNIQ_KEY\x01K%d" % n + shared for n in range(6)]
    assert [*messages.keys] == [b"K0K1K2K3K4K5", b"k" * 6]
    assert messages.tag_codes == tag_code("t")
    assert [*messages.born_ms] == [NOW_MS] * 6


async def test_another_layout_is_learnt_from_one_batch(templates: Templates) -> None:
    template = templates.template(batch_frame(1, [keyed(b"old", "ZZ")]))
    short = batch_of(keyed(b"a", "K1"))
    long = batch_of(keyed(b"abc", "K1"))

    for batch, count in (short, 1), (long, 1), (short + short, 2):
        messages = template.uniform(columns(template, [()], [batch]))
        assert messages is not None
        assert len(messages) == count


@pytest.mark.parametrize(
    "batch",
    [
        b"",
        b"no batch",
        batch_of(keyed(b"a", "K1"), keyed(b"ab", "K2")),
        batch_of(keyed(b"a", "K1", TAGS="t"), keyed(b"a", "K2", TAGS="u")),
        batch_of((b"a", {})),
        batch_of(keyed(b"a", "K1", DELAY="1")),
    ],
)
async def test_a_batch_that_is_not_uniform_is_left_to_the_slow_path(
    templates: Templates, batch: bytes
) -> None:
    """The slow path says what is wrong with it, if anything is."""
    template = templates.template(batch_frame(1, [keyed(b"old", "ZZ")]))

    assert template.uniform(columns(template, [()], [batch])) is None


async def test_a_batch_whose_records_are_too_large_is_left_to_the_slow_path(
    templates: Templates,
) -> None:
    template = templates.template(batch_frame(1, [keyed(b"old", "ZZ")]))
    message = batch_of(keyed(b"a", "K1"))
    first = template.uniform(columns(template, [()], [message]))
    assert first is not None
    fitting = (BODY_SIZE_MAX + 65536) // template.size_in_log(first)

    assert template.uniform(columns(template, [()], [message * fitting])) is not None
    assert template.uniform(columns(template, [()], [message * (fitting + 1)])) is None
    many = template.uniform(columns(template, [()] * 3, [message * fitting] * 3))
    assert many is not None, "the limit is for each batch"


async def test_batches_that_only_together_are_whole_messages_are_left_to_the_slow_path(
    templates: Templates,
) -> None:
    template = templates.template(batch_frame(1, [keyed(b"old", "ZZ")]))
    three = batch_of(*(keyed(b"a", f"K{n}") for n in range(3)))
    middle, odd = divmod(len(three), 2)
    assert not odd
    assert template.uniform(columns(template, [()], [three])) is not None

    halves = [three[:middle], three[middle:]]

    assert template.uniform(columns(template, [()] * 2, halves)) is None


@pytest.mark.parametrize("shared", ["KEYS", "TAGS"])
async def test_a_batch_with_keys_or_tags_of_its_own_has_no_usable_template(
    templates: Templates, shared: str
) -> None:
    frame = batch_frame(1, [keyed(b"old", "ZZ")])
    request = decode(frame)
    request.fields["i"] += f"\x02{shared}\x01x"

    assert not templates.template(request.encode()[4:]).is_usable
