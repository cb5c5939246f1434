"""The parts of a consumer are those that its options ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.client._consume.local_offsets import LocalOffsets
from roquet.client._consume.message_stream import MessageStream
from roquet.client._consume.offsets import BrokerOffsets
from roquet.client._consume.parts import message_stream, offset_store, redelivery
from roquet.client._consume.prefetch import PrefetchBuffer
from roquet.client._consume.redelivery import OrderedRedelivery, Redelivery
from roquet.client._net.session import Session
from roquet.client.config import ClientConfig
from roquet.errors import ConfigError
from tests.client.cluster import NAME_SERVER


@pytest.fixture
def session() -> Session:
    return Session(ClientConfig(NAME_SERVER))


async def test_offsets_are_at_the_brokers_unless_a_member_broadcasts(
    session: Session, tmp_path: Path
) -> None:
    assert isinstance(offset_store(session, "G", None, None, broadcast=False), BrokerOffsets)
    local = offset_store(session, "G", "stable", tmp_path, broadcast=True)
    assert isinstance(local, LocalOffsets)
    with pytest.raises(ConfigError, match="client_id"):
        offset_store(session, "G", None, tmp_path, broadcast=True)
    with pytest.raises(ConfigError, match="offsets_folder needs broadcast=True"):
        offset_store(session, "G", "stable", tmp_path, broadcast=False)


@pytest.mark.parametrize(("ordered", "kind"), [(False, Redelivery), (True, OrderedRedelivery)])
async def test_failed_messages_of_ordered_queues_keep_their_place(
    session: Session, ordered: bool, kind: type[Redelivery]
) -> None:
    made = redelivery(PrefetchBuffer(), session, "G", None, 1000, ordered=ordered, broadcast=False)
    assert type(made) is kind


@pytest.mark.parametrize(("timeout_ms", "expires_s"), [(1500, 1.5), (None, None)])
async def test_the_consume_timeout_counts_if_there_is_one(
    session: Session, timeout_ms: int | None, expires_s: float | None
) -> None:
    prefetch = PrefetchBuffer()
    failed = redelivery(prefetch, session, "G", None, 1000, ordered=False, broadcast=False)
    made = message_stream(prefetch, failed, 1, timeout_ms, None, None)
    assert type(made) is MessageStream
    assert made.in_progress.timeout_s == expires_s
