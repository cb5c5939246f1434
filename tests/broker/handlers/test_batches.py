"""What becomes of the messages of a batch, and which batches are refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from roquet.broker.handlers.batches import RECORD_OVERHEAD_MAX, Batches
from roquet.broker.handlers.send_plan import SendPlan, SendValues
from roquet.broker.handlers.send_planner import SendPlanner
from roquet.common.steps import finished
from roquet.errors import Refused
from roquet.protocol.headers.send import SendHeaderV2
from roquet.protocol.records.batch import batch_item
from roquet.protocol.records.message import PROPERTIES_SIZE_MAX, join_properties, tag_code
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.storage.batch_records import BatchItem, BatchRecords
from tests.broker.send_sides import NOW_MS, SEND_CONFIG, Side

SIZE_MAX: Final = 1000
"""`maxMessageSize`."""

Messages = Sequence[tuple[bytes, dict[str, str]]]
"""Body and properties of each message."""


class Sender:
    """Batches that a client sends to one broker."""

    def __init__(self, folder: Path, body_size_max: int = 1 << 20) -> None:
        settings = replace(SEND_CONFIG.store, max_message_size=body_size_max)
        self.side = Side(folder, learns=False, send_config=replace(SEND_CONFIG, store=settings))
        self.batches = Batches(self.side.send_context)

    def plan(
        self, messages: Messages, shared: dict[str, str] | None = None
    ) -> tuple[SendPlan, SendValues]:
        """The plan of a batch, and its values.

        :param shared: the properties of the batch.
        """
        properties = join_properties(shared or {})
        header = SendHeaderV2("group", "T", 1, 0, NOW_MS, 0, properties=properties, batch=True)
        body = b"".join(
            batch_item(0, body, join_properties(pairs).encode()) for body, pairs in messages
        )
        request = Command(RequestCode.SEND_BATCH_MESSAGE, header.write(), body)
        return SendPlanner(self.side.send_context).plan(request, self.side.connection)

    def pack(self, messages: Messages, shared: dict[str, str] | None = None) -> BatchRecords:
        return finished(self.batches.packed(*self.plan(messages, shared)))

    def item(self, pairs: dict[str, str], shared: dict[str, str] | None = None) -> BatchItem:
        """What is stored of a message with these properties."""
        plan, values = self.plan([(b"body", pairs)], shared)
        make_item = self.batches.item_maker(plan, values.pairs)
        return make_item(7, b"body", join_properties(pairs).encode())

    def steps(self, messages: Messages) -> int:
        """In how many steps they are packed, beside the last one."""
        return sum(1 for _ in self.batches.packed(*self.plan(messages)))


@pytest.fixture
async def sender(tmp_path: Path) -> AsyncIterator[Sender]:
    sender = Sender(tmp_path)
    yield sender
    sender.side.store.abandon()


# what is stored


async def test_a_message_has_its_own_properties_before_those_of_the_batch(sender: Sender) -> None:
    item = sender.item({"a": "b"}, {"WAIT": "true"})

    assert item.properties == b"a\x01b\x02WAIT\x01true\x02CLUSTER\x01C"
    assert (item.flag, item.body) == (7, b"body")


async def test_a_message_without_properties_has_those_of_the_batch(sender: Sender) -> None:
    assert sender.item({}, {"WAIT": "true"}).properties == b"WAIT\x01true\x02CLUSTER\x01C"


async def test_a_separator_that_a_client_wrote_is_not_doubled(sender: Sender) -> None:
    plan, values = sender.plan([(b"body", {})])
    make_item = sender.batches.item_maker(plan, values.pairs)

    assert make_item(0, b"", b"a\x01b\x02").properties == b"a\x01b\x02CLUSTER\x01C"


async def test_a_message_keeps_its_unique_key_or_gets_that_of_the_batch(sender: Sender) -> None:
    shared = {"UNIQ_KEY": "of-batch"}

    with_key, without_key = sender.item({"UNIQ_KEY": "own"}, shared), sender.item({}, shared)

    assert with_key.properties == b"UNIQ_KEY\x01own\x02CLUSTER\x01C"
    assert without_key.properties == b"UNIQ_KEY\x01of-batch\x02CLUSTER\x01C"


async def test_a_message_is_found_by_its_own_tag_and_keys(sender: Sender) -> None:
    item = sender.item({"UNIQ_KEY": "u", "KEYS": "k1 k2", "TAGS": "t"}, {"TAGS": "of-batch"})

    assert item.tag_code == tag_code("t")
    assert set(item.keys) == {b"u", b"k1", b"k2"}


async def test_each_message_is_a_record(sender: Sender) -> None:
    assert len(sender.pack([(b"%d" % number, {}) for number in range(70)])) == 70


# what is refused


def refusal(sender: Sender, messages: Messages, shared: dict[str, str] | None = None) -> str:
    with pytest.raises(Refused) as refused:
        sender.pack(messages, shared)
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
    return refused.value.remark


async def test_a_batch_without_messages_is_refused(sender: Sender) -> None:
    assert refusal(sender, []) == "the batch has no messages"


async def test_neither_a_batch_nor_a_message_in_one_is_delayed(sender: Sender) -> None:
    why = "messages of a batch cannot be delayed: send them one by one"
    delayed = {"DELAY": "1"}

    assert refusal(sender, [(b"body", {})], delayed) == why
    assert refusal(sender, [(b"body", {}), (b"body", delayed)]) == why
    assert len(sender.pack([(b"body", {"DELAY": "0"})])) == 1


async def test_a_message_in_a_batch_is_not_transactional(sender: Sender) -> None:
    messages = [(b"body", {"TRAN_MSG": "true"})]

    assert refusal(sender, messages) == "a transactional message cannot be in a batch"


async def test_the_properties_of_message_and_batch_have_one_limit(sender: Sender) -> None:
    room = PROPERTIES_SIZE_MAX - len("a\x01\x02b\x01b\x02CLUSTER\x01C")

    assert len(sender.pack([(b"body", {"a": "a" * room})], {"b": "b"})) == 1
    assert "allowed are 32767" in refusal(sender, [(b"body", {"a": "a" * (room + 1)})], {"b": "b"})


async def test_a_body_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    sender = Sender(tmp_path, SIZE_MAX)

    assert "the body of the batch has" in refusal(sender, [(bytes(SIZE_MAX), {})])
    sender.side.store.abandon()


async def test_records_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    """Each has the properties of the batch, so they take much more than the body."""
    sender = Sender(tmp_path, SIZE_MAX)
    shared = {"a": "a" * 20_000}
    fitting = (SIZE_MAX + RECORD_OVERHEAD_MAX) // 20_000

    assert len(sender.pack([(b"b", {})] * fitting, shared)) == fitting
    assert refusal(sender, [(b"b", {})] * (fitting + 2), shared).startswith(
        f"the first {fitting + 1} messages of a batch of"
    )
    sender.side.store.abandon()


# steps


@pytest.mark.parametrize(
    ("messages", "steps"),
    [
        ([(b"body", {})] * 31, 0),
        ([(b"body", {})] * 32, 1),
        ([(b"body", {})] * 100, 3),
        ([(bytes(31 * 4096), {})], 1),
        ([(bytes(64 * 4096), {})], 2),
        ([(b"body", {"KEYS": " ".join(f"k{number}" for number in range(32 * 31))})], 1),
    ],
)
async def test_a_step_takes_32_messages_or_what_takes_as_long(
    sender: Sender, messages: Messages, steps: int
) -> None:
    assert sender.steps(messages) == steps
