"""The parts of a consumer that differ with its options."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from roquet.client._consume.hooked_stream import HookedMessageStream
from roquet.client._consume.local_offsets import LocalOffsets
from roquet.client._consume.message_stream import MessageStream
from roquet.client._consume.offsets import BrokerOffsets, OffsetStore
from roquet.client._consume.prefetch import PrefetchBuffer
from roquet.client._consume.redelivery import (
    SUSPEND_MS_MAX,
    SUSPEND_MS_MIN,
    OrderedRedelivery,
    Redelivery,
)
from roquet.client._consume.send_back import NoSendBack, SendBack
from roquet.client._consume.trace import ConsumeTrace
from roquet.client._net.hooks import ConsumeHooks
from roquet.client._net.session import Session
from roquet.common.arguments import check_number
from roquet.errors import ConfigError

RECONSUME_TIMES_MAX: Final = 16


def offset_store(
    session: Session,
    group: str,
    client_id: str | None,
    folder: str | Path | None,
    *,
    broadcast: bool,
) -> OffsetStore:
    """Where the offsets of a group are stored: at the brokers, or in a folder of this host.

    :param client_id: that of the config, which is the same after a restart; or None.
    :raises ConfigError: the folder is not used, or the client has no id for it.
    """
    if broadcast:
        return LocalOffsets(folder, client_id, group, session.runtime)
    if folder is not None:
        raise ConfigError(
            "offsets_folder needs broadcast=True: otherwise the brokers store the offsets"
        )
    return BrokerOffsets(session, group)


def redelivery(
    prefetch: PrefetchBuffer,
    session: Session,
    group: str,
    max_reconsume_times: int | None,
    suspend_ms: int,
    *,
    ordered: bool,
    broadcast: bool,
) -> Redelivery:
    """What becomes of failed messages.

    :raises ConfigError: a number is out of range.
    """
    times_max = RECONSUME_TIMES_MAX if max_reconsume_times is None else max_reconsume_times
    check_number("max_reconsume_times", times_max, -1)
    check_number("suspend_ms", suspend_ms, SUSPEND_MS_MIN, SUSPEND_MS_MAX)
    send_back = NoSendBack() if broadcast else SendBack(session, group, times_max)
    if ordered:
        return OrderedRedelivery(prefetch, send_back, max_reconsume_times, suspend_ms)
    return Redelivery(prefetch, send_back)


def message_stream(
    prefetch: PrefetchBuffer,
    redelivery: Redelivery,
    uncompressed_max: int,
    consume_timeout_ms: int | None,
    trace: ConsumeTrace | None,
    hooks: ConsumeHooks | None,
) -> MessageStream:
    """The messages that the application gets. Without hooks it pays for none.

    :raises ConfigError: a number is out of range.
    """
    expires_s: float | None = None
    if consume_timeout_ms is not None:
        check_number("consume_timeout_ms", consume_timeout_ms, 1)
        expires_s = consume_timeout_ms / 1000
    if hooks is None:
        return MessageStream(prefetch, redelivery, uncompressed_max, expires_s, trace)
    return HookedMessageStream(prefetch, redelivery, uncompressed_max, expires_s, trace, hooks)
