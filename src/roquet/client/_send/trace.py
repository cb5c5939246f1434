"""The message trace: what happened to messages, sent to a topic where Apache's tools look for it.

See docs/guide/observing.md#message-trace.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, Literal, Self, TypeAlias

from roquet.client._net.close_limit import limited_s
from roquet.client._net.session import Session
from roquet.client._net.tasks import Tasks, pause
from roquet.client._send.encoded_message import EncodedMessage
from roquet.client._send.encoder import MessageEncoder
from roquet.client._send.sender import Sender, SendRules
from roquet.client._send.topic_routes import TopicRoutes
from roquet.client._send.trace_records import (
    DEFAULT_REGION,
    REGION,
    TRACE_SWITCH,
    MessageKind,
    SentRecord,
    TracedMessage,
    TraceRecord,
    TransactionRecord,
)
from roquet.client._send.unique_key import UniqueKeys
from roquet.client.send_result import SendResult, SendStatus
from roquet.common.failure_streak import FailureStreak
from roquet.common.limited_log import LimitedLog
from roquet.common.loop_time import now_s
from roquet.errors import ConfigError, RoquetError
from roquet.protocol.records.batch import split_batch
from roquet.protocol.records.compression import ZLIB
from roquet.protocol.records.message import (
    TRACE_TOPIC,
    Message,
    check_topic,
    split_properties,
)
from roquet.protocol.remoting.command import Command

log = logging.getLogger(__name__)

RECORDS_MAX: Final = 4096
"""Records that may wait for being sent; further ones are dropped. They take some MB at most."""
LINGER_S: Final = 0.5
"""How long the first record of a message waits for others."""
TEXT_SIZE_MAX: Final = 118_000
"""Maximum number of characters of a trace message, unless one record is larger."""
WORDS_SIZE_MAX: Final = 24_000
"""Maximum number of characters of its keys. Brokers refuse properties of more than 32,767 bytes."""
TIMEOUT_MS: Final = 5000
RETRIES: Final = 2
FLUSH_S_MAX: Final = 3.0
"""How long closing waits for the last records to be sent."""

Side: TypeAlias = Literal["PRODUCE", "CONSUME"]


class TraceSender:
    """Sends trace records to the trace topic, many at once, in the background.

    Invariant: adding a record neither waits nor fails. While records cannot be sent, at most
    `RECORDS_MAX` wait and the others are dropped. Nothing that is sent here is traced itself.

    :param group: the group whose clients are traced, without a namespace.
    :param topic: the trace topic.
    """

    def __init__(self, session: Session, group: str, side: Side, topic: str) -> None:
        self.session = session
        self.group = group
        self.topic = topic
        # Apache's clients number these groups, as one client must not have a group twice.
        inner_group = f"_INNER_TRACE_PRODUCER-{group}-{side}-1"
        rules = SendRules(RETRIES, max_in_flight=1)
        self._sender = Sender(session, TopicRoutes(session), inner_group, rules)
        unique_keys = UniqueKeys.of_client(session.client_id, session.runtime)
        self._encoder = MessageEncoder(unique_keys, ZLIB)
        self._waiting: deque[tuple[str, tuple[str, ...]]] = deque()
        self._size = 0
        self._filled = asyncio.Event()
        """Set while there is something to do: records wait, or this is being closed."""
        self._due = asyncio.Event()
        """Set when the records that wait need not wait for others."""
        self._is_closing = False
        self._tasks = Tasks()
        self._streak = FailureStreak()
        self._limited_log = LimitedLog(log)

    @classmethod
    def of(cls, session: Session, group: str, side: Side, trace: object) -> Self | None:
        """What the option `trace` asks for; None if nothing is traced.

        :raises ConfigError: it is neither a truth value nor a text.
        :raises MessageError: no topic can have that name.
        """
        if isinstance(trace, bool):
            return cls(session, group, side, TRACE_TOPIC) if trace else None
        if not isinstance(trace, str):
            raise ConfigError(
                f"trace is {trace!r}: give True, False, or the name of the trace topic"
            )
        check_topic(trace)
        return cls(session, group, side, trace)

    def start(self) -> None:
        self._tasks.start(self._run(), f"trace of {self.group}")

    async def close(self) -> None:
        """Send what waits, for a limited time."""
        self._is_closing = True
        self._filled.set()
        self._due.set()
        await self._tasks.finish(limited_s(FLUSH_S_MAX))
        if self._waiting:
            log.warning(
                "trace records not sent, the client is closed: group=%s topic=%s records=%d",
                self.group, self.topic, len(self._waiting),
            )  # fmt: skip

    def traces(self, topic: str) -> bool:
        """Whether messages of this topic are traced."""
        return not topic.startswith(self.topic)

    def add(self, record: TraceRecord) -> None:
        """Have a record sent soon."""
        if len(self._waiting) >= RECORDS_MAX:
            self._limited_log.warning(
                "full", "trace record dropped, too many wait: group=%s topic=%s waiting=%d",
                self.group, self.topic, len(self._waiting),
            )  # fmt: skip
            return
        text = record.text
        self._waiting.append((text, record.message.words))
        self._size += len(text)
        self._filled.set()
        if self._size >= TEXT_SIZE_MAX:
            self._due.set()

    async def _run(self) -> None:
        while True:
            await self._filled.wait()
            if not self._is_closing:
                await pause(self._due, LINGER_S)
            await self._send_some()
            if self._size >= TEXT_SIZE_MAX:
                self._due.set()
            if not self._waiting:
                if self._is_closing:
                    return
                self._filled.clear()

    async def _send_some(self) -> None:
        """Send one message of records. Failures are logged, and the records are lost."""
        texts, words = self._take()
        if not texts:
            return
        body = "".join(texts).encode("utf-8", "replace")
        try:
            encoded = self._encoder.encode(Message(self.topic, body, keys=words))
            await self._sender.send(encoded, TIMEOUT_MS)
        except RoquetError as error:
            if self._streak.failed():
                log.warning(
                    "trace not sent: group=%s topic=%s records=%d error=%s",
                    self.group, self.topic, len(texts), error,
                )  # fmt: skip
        except Exception:  # what is wrong with one record must not end the trace
            log.exception("trace not sent: group=%s topic=%s", self.group, self.topic)
        else:
            if self._streak.ended():
                log.warning("trace sent again: group=%s topic=%s", self.group, self.topic)

    def _take(self) -> tuple[list[str], tuple[str, ...]]:
        """Texts and words of the next message."""
        texts: list[str] = []
        words: dict[str, None] = {}
        text_size = words_size = 0
        while self._waiting:
            text, of_message = self._waiting[0]
            added = [word for word in of_message if word not in words]
            added_size = sum(len(word) + 1 for word in added)
            text_size += len(text)
            words_size += added_size
            if texts and (text_size > TEXT_SIZE_MAX or words_size > WORDS_SIZE_MAX):
                break
            self._waiting.popleft()
            self._size -= len(text)
            texts.append(text)
            # A message with very many keys is found by its id, which comes first.
            words.update(dict.fromkeys(added if added_size <= WORDS_SIZE_MAX else added[:1]))
        return texts, tuple(words)


class SendTrace:
    """Traces what a producer sends.

    :param sender: sends the records.
    """

    def __init__(self, sender: TraceSender) -> None:
        self.sender = sender

    def sent(
        self,
        message: EncodedMessage,
        response: Command,
        address: str,
        results: Sequence[SendResult],
        began_s: float,
    ) -> None:
        """Trace that a broker stored a message or a batch, unless the broker does not want it.

        Apache's client writes one record for a batch, which no id finds; here each message of it
        has its own.

        :param address: that of the broker.
        :param began_s: the time of the event loop at which the try began.
        """
        sender, fields = self.sender, response.fields
        if not sender.traces(message.topic) or fields.get(TRACE_SWITCH) == "false":
            return
        cost_ms = int((now_s() - began_s) * 1000)
        parts = _parts(message)
        for result, (properties, body_size) in zip(results, parts, strict=True):
            sender.add(
                SentRecord(
                    sender.session.runtime.now_ms() - cost_ms,
                    fields.get(REGION) or DEFAULT_REGION,
                    sender.group,
                    TracedMessage.of(result.queue.topic, result.message_id, properties),
                    address,
                    body_size,
                    cost_ms,
                    MessageKind.of(properties),
                    result.offset_message_id,
                    result.status is SendStatus.SEND_OK,
                )
            )

    def decided(
        self,
        message: TracedMessage,
        address: str,
        transaction_id: str,
        state: int,
        *,
        is_check: bool,
    ) -> None:
        """Trace the outcome of a transaction.

        :param address: that of the broker that is told.
        :param state: as in the header of END_TRANSACTION.
        """
        sender = self.sender
        if sender.traces(message.topic):
            sender.add(
                TransactionRecord(
                    sender.session.runtime.now_ms(),
                    DEFAULT_REGION,
                    sender.group,
                    message,
                    address,
                    transaction_id,
                    state,
                    is_check,
                )
            )


def _parts(message: EncodedMessage) -> list[tuple[Mapping[str, str], int]]:
    """Properties and body size of each message that is sent."""
    if not message.is_batch:
        return [(split_properties(message.properties), len(message.body))]
    return [
        (split_properties(properties.decode()), len(body))
        for _, body, properties in split_batch(message.body)
    ]
