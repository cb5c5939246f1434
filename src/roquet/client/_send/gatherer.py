"""Gathers sends of one topic that come within a short time into few requests.

See docs/guide/sending.md#sends-that-are-gathered.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from roquet.client._net.tasks import Tasks
from roquet.client._send.encoded_message import RECORD_OVERHEAD, EncodedMessage, encode_batch
from roquet.client._send.fifo_semaphore import FifoSemaphore
from roquet.client._send.queue_choice import Pick
from roquet.client._send.sender import Sender
from roquet.client._send.topic_routes import TopicRoutes
from roquet.client.send_result import SendResult
from roquet.common.loop_time import now_s
from roquet.errors import CallTimeout, ConnectionClosed, RoquetError
from roquet.protocol.records.batch import batch_item
from roquet.protocol.records.message import RETRY_PREFIX, Message, MessageQueue

BATCH_SIZE: Final = 500
"""A thousand tasks that send fill two requests: the broker stores one while the client makes the
other. A script of 100,000 messages takes 1.04 s so, and 1.23 s with requests of 1000."""
REQUEST_SIZE_MAX: Final = 1024 * 1024
"""Maximum size of a gathered request. It counts a character of properties as one byte, which may
have four, and brokers refuse requests of more than 4 MiB (`maxMessageSize`)."""
PROPERTIES_MAX: Final = 7000
"""Messages with longer properties are sent alone. A broker takes 32,767 bytes, and refuses the
whole batch if one of its messages has more."""


@dataclass(slots=True, eq=False)
class _Send:
    message: EncodedMessage
    size: int
    """About the size of the record; 0: the message is sent alone."""
    kind: tuple[bool, int]
    """`wait_stored` and `timeout_ms`: sends of different kinds are not sent together."""
    deadline: float
    pick: Pick | None
    result: asyncio.Future[list[SendResult]]

    @property
    def wait_stored(self) -> bool:
        return self.kind[0]

    @property
    def timeout_ms(self) -> int:
        return self.kind[1]

    def fail(self, error: BaseException) -> None:
        if self.result.done():
            return
        if isinstance(error, RoquetError):
            # A copy: each of the waiting tasks adds its own traceback.
            cause, error = error.__cause__, copy(error)
            error.__cause__ = cause
        self.result.set_exception(error)


@dataclass(slots=True)
class _TopicSends:
    sends: list[_Send] = field(default_factory=list)
    size: int = 0
    timer: asyncio.TimerHandle | None = None


class Gatherer:
    """Gathers sends of one topic until the linger is over or a request is full.

    Invariant: messages for one queue, as their sends or sharding keys say, are sent in the order
    of the sends: the next request for that queue waits until the one before is answered.

    :param tasks: runs the requests.
    :param linger_ms: how long the first send of a request waits for others.
    :param batch_size: maximum number of messages of a request.
    :param size_max: maximum size of a request in bytes, as it will be stored.
    """

    def __init__(
        self,
        sender: Sender,
        routes: TopicRoutes,
        tasks: Tasks,
        linger_ms: int,
        batch_size: int,
        size_max: int = REQUEST_SIZE_MAX,
    ) -> None:
        self._size_max = min(size_max, REQUEST_SIZE_MAX)
        self._sender = sender
        self._routes = routes
        self._tasks = tasks
        self._linger_s = linger_ms / 1000
        self._is_closing = False
        self._batch_size = batch_size
        self._waiting: dict[str, _TopicSends] = {}
        self._requests: set[asyncio.Task[None]] = set()
        self._choosing: defaultdict[str, FifoSemaphore] = defaultdict(lambda: FifoSemaphore(1))
        """By topic: whoever chooses queues for gathered sends, one after the other."""
        self._lanes: defaultdict[MessageQueue, FifoSemaphore] = defaultdict(
            lambda: FifoSemaphore(1)
        )

    def begin(
        self, message: Message, encoded: EncodedMessage, timeout_ms: int, pick: Pick | None
    ) -> asyncio.Future[list[SendResult]] | None:
        """Begin to send a message together with others; None: it must be sent alone, at once.

        :param encoded: the message, encoded to be sent alone.
        :returns: the future of its one result. Its errors are those of `Sender.send`.
        """
        size = _size_in_request(message, encoded, self._size_max)
        if not size and pick is None:
            return None
        loop = asyncio.get_running_loop()
        each = _Send(
            encoded,
            size,
            (message.wait_stored, timeout_ms),
            loop.time() + timeout_ms / 1000,
            pick,
            loop.create_future(),
        )
        self._add(encoded.topic, each)
        return each.result

    def _add(self, topic: str, each: _Send) -> None:
        waiting = self._waiting.get(topic)
        if waiting is None:
            waiting = self._waiting[topic] = _TopicSends()
            if not self._is_closing:
                loop = asyncio.get_running_loop()
                waiting.timer = loop.call_later(self._linger_s, self._begin, topic)
        waiting.sends.append(each)
        waiting.size += each.size
        is_full = len(waiting.sends) >= self._batch_size or waiting.size >= self._size_max
        if is_full or self._is_closing:
            self._begin(topic)

    def _begin(self, topic: str) -> None:
        waiting = self._waiting.pop(topic)
        if waiting.timer is not None:
            waiting.timer.cancel()
        sends = waiting.sends
        task = self._tasks.start(self._send_all(topic, sends), f"sends to {topic}")
        self._requests.add(task)
        task.add_done_callback(partial(self._ended, sends))

    def _ended(self, sends: Sequence[_Send], task: asyncio.Task[None]) -> None:
        self._requests.discard(task)
        # A close that was cancelled ends the task, perhaps before it begins. Its senders were not
        # cancelled: without an error they would seem to be.
        for each in sends:
            each.fail(ConnectionClosed("the client was closed: the message may be stored"))

    async def flush(self) -> None:
        """Send what waits, and wait until all sends that were called before are answered."""
        for topic in list(self._waiting):
            self._begin(topic)
        if self._requests:
            await asyncio.wait(list(self._requests))

    async def close(self) -> None:
        """Flush. A send that comes from now on waits for no others, only for those before it."""
        self._is_closing = True
        await self.flush()

    async def _send_all(self, topic: str, sends: Sequence[_Send]) -> None:
        try:
            free: dict[tuple[bool, int], list[_Send]] = {}
            for each in sends:
                if each.pick is None:
                    free.setdefault(each.kind, []).append(each)
            requests = [
                asyncio.create_task(self._send_together(part))
                for alike in free.values()
                for part in self._parts(alike)
            ]
            picked = [each for each in sends if each.pick is not None]
            if picked:
                requests += await self._begin_lanes(topic, picked)
            await asyncio.gather(*requests)
        except Exception as error:  # each send raises it
            for each in sends:
                each.fail(error)

    async def _begin_lanes(self, topic: str, sends: Sequence[_Send]) -> list[asyncio.Task[None]]:
        """Choose the queue of each send, and begin the requests of each queue in their order."""
        async with AsyncExitStack() as stack:
            with _expiring(topic, sends):
                await stack.enter_async_context(self._choosing[topic])
                try:
                    route = await self._routes.get(topic, max(each.deadline for each in sends))
                except RoquetError as error:
                    for each in sends:
                        each.fail(error)
                    return []
            by_queue: dict[MessageQueue, list[_Send]] = {}
            for each in sends:
                if each.result.done() or each.pick is None:
                    continue
                try:
                    queue = each.pick(route.queues)
                except Exception as error:  # of the application's own function
                    each.fail(error)
                else:
                    by_queue.setdefault(queue, []).append(each)
            return [
                asyncio.create_task(self._send_in_lane(part, queue))
                for queue, in_order in by_queue.items()
                for part in self._parts(in_order)
            ]

    def _parts(self, sends: Sequence[_Send]) -> Iterator[list[_Send]]:
        """Divide sends, in their order, among requests."""
        part: list[_Send] = []
        size = 0
        for each in sends:
            if part and (
                not each.size
                or not part[0].size
                or each.kind != part[0].kind
                or len(part) >= self._batch_size
                or size + each.size > self._size_max
            ):
                yield part
                part, size = [], 0
            part.append(each)
            size += each.size
        if part:
            yield part

    async def _send_in_lane(self, sends: Sequence[_Send], queue: MessageQueue) -> None:
        lane = self._lanes[queue]
        try:
            await lane.enter(sends[0].deadline)
        except TimeoutError:
            error = CallTimeout(
                f"the send to queue {queue} was not sent: it waited {sends[0].timeout_ms} ms "
                "behind earlier sends to this queue"
            )
            for each in sends:
                each.fail(error)
            return
        try:
            await self._send_together(sends, lambda _: queue)
        finally:
            lane.leave()

    async def _send_together(self, sends: Sequence[_Send], pick: Pick | None = None) -> None:
        """Send one request, and give each send its own result."""
        # Those that were cancelled meanwhile are not sent.
        sends = [each for each in sends if not each.result.done()]
        if not sends:
            return
        left_ms = int((sends[0].deadline - now_s()) * 1000)
        try:
            if left_ms <= 0:
                raise CallTimeout(
                    f"the send to topic {sends[0].message.topic} was not sent: its "
                    f"{sends[0].timeout_ms} ms were over while it waited for others (linger_ms)"
                )
            results = await self._sender.send(_joined(sends), left_ms, pick)
        except Exception as error:  # each send raises it
            for each in sends:
                each.fail(error)
            return
        cancelled = [each for each in sends if each.result.done()]
        if cancelled:
            size = sum(len(each.message.body) for each in cancelled)
            self._sender.counters.cancelled(len(cancelled), size)
        for each, result in zip(sends, results, strict=True):
            if not each.result.done():
                each.result.set_result([result])


@contextmanager
def _expiring(topic: str, sends: Sequence[_Send]) -> Iterator[None]:
    """Fail each send whose time is over before the block ends: other sends may have more."""
    firsts: dict[tuple[bool, int], _Send] = {}
    for each in sends:
        firsts.setdefault(each.kind, each)
    loop = asyncio.get_running_loop()
    timers = [
        loop.call_at(first.deadline, _expire, topic, [each for each in sends if each.kind == kind])
        for kind, first in firsts.items()
    ]
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()


def _expire(topic: str, sends: Sequence[_Send]) -> None:
    error = CallTimeout(
        f"the send to topic {topic} was not sent: its {sends[0].timeout_ms} ms were over before "
        "a queue of the topic was chosen"
    )
    for each in sends:
        each.fail(error)


def _size_in_request(message: Message, encoded: EncodedMessage, size_max: int) -> int:
    """About the size of the record of a message; 0 if it must be sent alone."""
    size = RECORD_OVERHEAD + len(encoded.topic) + len(encoded.body) + len(encoded.properties)
    is_alone = (
        message.delay_level
        or encoded.sys_flag
        or len(encoded.properties) > PROPERTIES_MAX
        or size > size_max
        or encoded.topic.startswith(RETRY_PREFIX)
    )
    return 0 if is_alone else size


def _joined(sends: Sequence[_Send]) -> EncodedMessage:
    first = sends[0].message
    if len(sends) == 1:
        return first
    body = b"".join(
        batch_item(each.message.flag, each.message.body, each.message.properties.encode())
        for each in sends
    )
    unique_keys = tuple(each.message.unique_keys[0] for each in sends)
    bodies_size = sum(len(each.message.body) for each in sends)
    return encode_batch(first.topic, body, unique_keys, sends[0].wait_stored, bodies_size)
