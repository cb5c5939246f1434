"""Producers, also of transactions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple, Self, TypeAlias

from roquet import sync
from roquet.client import send_result
from roquet.client.producer import TIMEOUT_MS, ProducerOptions
from roquet.client.received import ReceivedMessage as Delivered
from roquet.client.transactions import TransactionState
from roquet.common.arguments import check_number
from roquet.compat.rocketmq.exceptions import (
    ProducerException,
    ProducerSendOnewayFailed,
    ProducerSendOrderlyFailed,
    ProducerSendSyncFailed,
    ProducerStartFailed,
    raised_as,
)
from roquet.compat.rocketmq.messages import Message, ReceivedMessage
from roquet.compat.rocketmq.settings import ConnectionSettings
from roquet.compat.rocketmq.texts import Text, text_of
from roquet.errors import ClientStateError, MessageError
from roquet.protocol.records import message as m
from roquet.sync.callbacks import check_plain

log = logging.getLogger(__name__)


class SendStatus(IntEnum):
    """How safely a broker stored a message. With each status the master has the message."""

    OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3


_STATUS_OF = {
    send_result.SendStatus.SEND_OK: SendStatus.OK,
    send_result.SendStatus.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    send_result.SendStatus.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    send_result.SendStatus.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


class SendResult(NamedTuple):
    """What a broker answered: the message's id, and its offset in its queue."""

    status: SendStatus
    msg_id: str
    offset: int

    @classmethod
    def of(cls, result: send_result.SendResult) -> Self:
        """The result in the names of this package."""
        return cls(_STATUS_OF[result.status], result.message_id, result.queue_offset)


class TransactionStatus(IntEnum):
    """The outcome of a transaction; of an UNKNOWN one the broker asks later."""

    COMMIT = 0
    ROLLBACK = 1
    UNKNOWN = 2


_STATE_OF = {
    TransactionStatus.COMMIT: TransactionState.COMMIT,
    TransactionStatus.ROLLBACK: TransactionState.ROLLBACK,
    TransactionStatus.UNKNOWN: TransactionState.UNKNOWN,
}

Check: TypeAlias = Callable[[ReceivedMessage], int]
"""Half message -> a `TransactionStatus`."""
LocalExecute: TypeAlias = Callable[[ReceivedMessage, Any], int]
"""Half message, `user_args` -> a `TransactionStatus`."""


class Producer(ConnectionSettings):
    """Sends messages. Use it with `with`, or call `start` and `shutdown`.

    :param group_id: the producer group.
    :param orderly: makes no difference: any producer sends with a sharding key.
    :param timeout: the time for a send with all its tries, in ms.
    :param compress_level: 0 compresses no bodies; all other levels are the same here.
    :param max_message_size: larger bodies are refused, in bytes. None: the broker decides.
    """

    def __init__(
        self,
        group_id: Text,
        orderly: bool = False,  # noqa: ARG002 - as rocketmq-client-python
        timeout: int | None = None,
        compress_level: int | None = None,
        max_message_size: int | None = None,
    ) -> None:
        super().__init__(group_id)
        self._timeout_ms = TIMEOUT_MS if timeout is None else timeout
        self._compress_level = compress_level
        self._size_max = max_message_size
        self._producer: sync.Producer | None = None

    def set_timeout(self, timeout: int) -> None:
        """Set the time for a send with all its tries, in ms."""
        self._timeout_ms = timeout

    def set_compress_level(self, level: int) -> None:
        """Set whether large bodies are compressed: not with 0, else they are."""
        self._compress_level = level

    def set_max_message_size(self, max_size: int) -> None:
        """Set how large a body may be, in bytes."""
        self._size_max = max_size

    def start(self) -> None:
        """Connect to the cluster. A producer that runs is left as it is.

        :raises ProducerStartFailed: a setting cannot be used, or no name server answers.
        """
        if self._producer is not None:
            return
        with raised_as(ProducerStartFailed):
            self._producer = self._made().start()

    def _made(self) -> sync.Producer:
        return sync.Producer(self._config(), self._group, **self._options())

    def _options(self) -> ProducerOptions:
        if self._size_max is not None:
            check_number("max_message_size", self._size_max, 1)
        return {
            "timeout_ms": self._timeout_ms,
            "compression": None if self._compress_level == 0 else "zlib",
        }

    def shutdown(self) -> None:
        """Close the connections. A producer that does not run is left as it is.

        :raises ProducerException: a callback of this producer calls it.
        """
        producer = self._producer
        if producer is not None:
            with raised_as(ProducerException):
                producer.close()
            self._producer = None

    def send_sync(self, msg: Message) -> SendResult:
        """Send a message, and wait for the broker's answer.

        :raises ProducerSendSyncFailed: it was refused, or not answered in time.
        """
        with raised_as(ProducerSendSyncFailed):
            return SendResult.of(self._running().send(self._checked(msg)))

    def send_oneway(self, msg: Message) -> None:
        """Send a message without waiting for an answer.

        :raises ProducerSendOnewayFailed: it was not sent.
        """
        with raised_as(ProducerSendOnewayFailed):
            self._running().send_one_way(self._checked(msg))

    def send_orderly_with_sharding_key(self, msg: Message, sharding_key: Text) -> SendResult:
        """Send a message to the queue that belongs to a key, and wait for the broker's answer.

        :raises ProducerSendOrderlyFailed: it was refused, or not answered in time.
        """
        with raised_as(ProducerSendOrderlyFailed):
            key = text_of("sharding_key", sharding_key)
            producer = self._running()
            return SendResult.of(producer.send(self._checked(msg), sharding_key=key))

    def _running(self) -> sync.Producer:
        """:raises ClientStateError: it does not run."""
        if self._producer is None:
            raise ClientStateError(f"this {type(self).__name__} does not run: call start()")
        return self._producer

    def _checked(self, msg: Message) -> m.Message:
        """The message as `roquet.sync` takes it.

        :raises MessageError: it is none, breaks a rule of the protocol, or is too large.
        """
        if not isinstance(msg, Message):
            raise m.wrong_type("msg", msg, "a Message of this package")
        message = msg.to_send()
        if self._size_max is not None and len(message.body) > self._size_max:
            raise MessageError(
                f"a body of {len(message.body)} bytes: max_message_size allows {self._size_max}"
            )
        return message


class TransactionMQProducer(Producer):
    """Sends messages that are delivered only if a local transaction commits.

    :param group_id: the producer group.
    :param checker_callback: called in a thread for half messages whose outcome the broker does not
        know. If it raises, or returns no `TransactionStatus`, the broker asks again.
    :param user_args: nothing is done with it, as in rocketmq-client-python.
    :param timeout: the time for a send with all its tries, in ms.
    :param compress_level: 0 compresses no bodies; all other levels are the same here.
    :param max_message_size: larger bodies are refused, in bytes. None: the broker decides.
    """

    def __init__(
        self,
        group_id: Text,
        checker_callback: Check,
        user_args: object = None,  # noqa: ARG002 - as rocketmq-client-python
        timeout: int | None = None,
        compress_level: int | None = None,
        max_message_size: int | None = None,
    ) -> None:
        super().__init__(group_id, False, timeout, compress_level, max_message_size)
        with raised_as(ProducerException):
            check_plain("checker_callback", checker_callback)
        self._check = checker_callback

    def _made(self) -> sync.TransactionProducer:
        def check(message: Delivered) -> TransactionState:
            return _STATE_OF[TransactionStatus(self._check(ReceivedMessage(message)))]

        return sync.TransactionProducer(self._config(), self._group, check, **self._options())

    def send_message_in_transaction(
        self, message: Message, local_execute: LocalExecute, user_args: Any = None
    ) -> SendResult:
        """Store a half message, run the local transaction, and commit or roll back the message.

        An exception of `local_execute` is logged and counts as UNKNOWN, and so does what is no
        `TransactionStatus`: the broker asks `checker_callback` later.

        :param message: the message.
        :param local_execute: called in this thread with the half message and `user_args`.
        :param user_args: what `local_execute` gets.
        :raises ProducerSendSyncFailed: the half message was refused, or not answered in time.
        """

        def local(sent: m.Message, message_id: str) -> TransactionState:
            try:
                outcome = local_execute(ReceivedMessage.of_sent(sent, message_id), user_args)
                return _STATE_OF[TransactionStatus(outcome)]
            except Exception:  # of the application's function
                log.exception(
                    "local transaction failed, the broker asks later: transaction=%s", message_id
                )
                return TransactionState.UNKNOWN

        with raised_as(ProducerSendSyncFailed):
            check_plain("local_execute", local_execute)
            producer = self._running()
            assert isinstance(producer, sync.TransactionProducer)  # `_made` made it
            result = producer.send_in_transaction(self._checked(message), local)
            return SendResult.of(result.send_result)
