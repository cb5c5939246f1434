"""The consumer, which calls functions with messages."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from typing import Final, TypeAlias

from roquet import sync
from roquet.client.received import ReceivedMessage as Delivered
from roquet.common.arguments import check_number
from roquet.compat.rocketmq.exceptions import (
    ConsumerException,
    PushConsumerStartFailed,
    raised_as,
)
from roquet.compat.rocketmq.messages import ReceivedMessage
from roquet.compat.rocketmq.settings import ConnectionSettings
from roquet.compat.rocketmq.texts import Text, text_of
from roquet.errors import ClientStateError
from roquet.protocol.records.message import check_topic
from roquet.sync.callbacks import check_plain

THREAD_COUNT: Final = os.cpu_count() or 1
"""How many callbacks run at a time, if the program does not say."""


class ConsumeStatus(IntEnum):
    """What a callback returns."""

    CONSUME_SUCCESS = 0
    RECONSUME_LATER = 1


class MessageModel(IntEnum):
    """Which members of a group get a message: all of them, or one."""

    BROADCASTING = 0
    CLUSTERING = 1


Callback: TypeAlias = Callable[[ReceivedMessage], int | None]
"""Message -> a `ConsumeStatus`. None means success."""


class PushConsumer(ConnectionSettings):
    """A member of a consumer group that calls functions with messages.

    Use it with `with`, or call `start` and `shutdown`. The callbacks run in threads. A message is
    delivered again later, with a log line, if its callback raises, or returns neither a
    `ConsumeStatus` nor None.

    :param group_id: the consumer group.
    :param orderly: whether the messages of a queue are handled one after the other.
    :param message_model: whether all members get a message.
    """

    def __init__(
        self,
        group_id: Text,
        orderly: bool = False,
        message_model: int = MessageModel.CLUSTERING,
    ) -> None:
        super().__init__(group_id)
        self._is_ordered = orderly
        self._filters: dict[str, str] = {}
        self._callbacks: dict[str, Callback] = {}
        self._thread_count = THREAD_COUNT
        self._consumer: sync.Consumer | None = None
        self._runner: threading.Thread | None = None
        self.set_message_model(message_model)

    def set_message_model(self, model: int) -> None:
        """Set whether all members get a message, or one.

        :raises ConsumerException: it is no `MessageModel`.
        """
        try:
            self._model = MessageModel(model)
        except ValueError as error:
            raise ConsumerException(f"model is {model!r}: give a MessageModel") from error

    def set_thread_count(self, thread_count: int) -> None:
        """Set how many callbacks may run at a time."""
        self._thread_count = thread_count

    def set_message_batch_max_size(self, max_size: int) -> None:
        """Nothing is set: a callback gets one message, as in rocketmq-client-python."""

    def subscribe(self, topic: Text, callback: Callback, expression: Text = "*") -> None:
        """Have a function called with the messages of a topic.

        :param topic: the topic.
        :param callback: the function. Each topic may have its own.
        :param expression: `*`, or tags joined by `||`.
        :raises ConsumerException: an argument cannot be used.
        """
        with raised_as(ConsumerException):
            name, tags = text_of("topic", topic), text_of("expression", expression)
            check_topic(name)
            check_plain("callback", callback)
            self._callbacks[name] = callback
            self._filters[name] = tags
            if self._consumer is not None:
                self._consumer.subscribe(name, tags)

    def start(self) -> None:
        """Join the group, and call the callbacks from now on. One that runs is left as it is.

        :raises PushConsumerStartFailed: a setting cannot be used, or no name server answers.
        """
        if self._consumer is not None:
            return
        with raised_as(PushConsumerStartFailed):
            check_number("thread_count", self._thread_count, 1)
            is_broadcast = self._model is MessageModel.BROADCASTING
            self._consumer = sync.Consumer(
                self._config(has_stable_id=is_broadcast),
                self._group,
                self._filters,
                start="latest",
                ordered=self._is_ordered,
                broadcast=is_broadcast,
            ).start()
        # A daemon: the program ends with its main thread, as it does with rocketmq-client-python.
        self._runner = threading.Thread(
            target=self._run,
            args=(self._consumer, self._thread_count),
            name="roquet-push-consumer",
            daemon=True,
        )
        self._runner.start()

    def _run(self, consumer: sync.Consumer, thread_count: int) -> None:
        with suppress(ClientStateError):  # it was closed before this thread began
            consumer.run(self._consume, concurrency=thread_count)

    def _consume(self, message: Delivered) -> None:
        status = self._callbacks[message.topic](ReceivedMessage(message))
        if status is not None and ConsumeStatus(status) is ConsumeStatus.RECONSUME_LATER:
            message.retry()

    def shutdown(self) -> None:
        """Wait for the callbacks, store the offsets, and leave the group.

        A consumer that does not run is left as it is.

        :raises ConsumerException: a callback of this consumer calls it.
        """
        consumer, runner = self._consumer, self._runner
        if consumer is not None and runner is not None:
            with raised_as(ConsumerException):
                consumer.close()
            runner.join()
            self._consumer = None
