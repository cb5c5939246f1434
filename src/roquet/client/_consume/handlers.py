"""Runs a handler of the application for each message."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TypeAlias

from roquet.client._consume.message_stream import MessageStream
from roquet.client.received import ReceivedMessage
from roquet.common.callables import is_coroutine_function
from roquet.common.loop_time import now_s

log = logging.getLogger(__name__)

Handler: TypeAlias = (
    Callable[[ReceivedMessage], Awaitable[object]] | Callable[[ReceivedMessage], object]
)
"""Handles a message. Its end acknowledges the message, an exception has it delivered again."""


class HandlerRun:
    """Runs a handler for the messages of a consumer, several at a time.

    A coroutine function runs in the event loop, any other function in a thread of its own pool, so
    that it may block.

    :param concurrency: how many messages are handled at the same time.
    :param drain_s: how long handlers may work on after the consumer was stopped; those that still
        run then are cancelled, and their messages are delivered again, to any member.
    """

    def __init__(
        self, messages: MessageStream, handler: Handler, concurrency: int, drain_s: float
    ) -> None:
        self._messages = messages
        self._handler = handler
        self._concurrency = concurrency
        self._drain_s = drain_s
        self.workers: set[asyncio.Task[None]] = set()
        self.ended = asyncio.Event()
        self._pool: ThreadPoolExecutor | None = None

    async def run(self) -> None:
        """Handle messages until the consumer is stopped or closed, and its handlers are done."""
        handle = self._in_loop
        if not is_coroutine_function(self._handler):
            self._pool = ThreadPoolExecutor(self._concurrency, "roquet-handler")
            handle = self._in_thread
        try:
            async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as group:
                self.workers.update(
                    group.create_task(self._work(handle), name=f"handler {number}")
                    for number in range(self._concurrency)
                )
                await self._messages.stopped.wait()
                limit.reschedule(now_s() + self._drain_s)
        except TimeoutError:
            log.warning(
                "handlers cancelled, they did not end in time after the stop: waited_s=%g",
                self._drain_s,
            )
        finally:
            self.ended.set()
            if self._pool is not None:
                self._pool.shutdown(wait=False, cancel_futures=True)

    async def _work(self, handle: Callable[[ReceivedMessage], Awaitable[object]]) -> None:
        while (message := await self._messages.next()) is not None:
            try:
                async with message:
                    await handle(message)
            except asyncio.CancelledError:
                worker = asyncio.current_task()
                if worker is None or worker.cancelling():
                    if not self._messages.stopped.is_set():
                        # The consumer goes on without this run, an ordered one only after this.
                        message.retry()
                    raise
                # something that the handler awaited was cancelled, not the handler
                log.exception(
                    "message failed: msgId=%s topic=%s", message.message_id, message.topic
                )
                message.retry()

    async def _in_loop(self, message: ReceivedMessage) -> None:
        result = self._handler(message)
        if inspect.isawaitable(result):
            await result

    async def _in_thread(self, message: ReceivedMessage) -> None:
        loop = asyncio.get_running_loop()
        # the handler may settle the message in its thread
        message.settle_in_this_thread(loop.call_soon_threadsafe)
        # with the context variables of this task, as `asyncio.to_thread` does
        handle = partial(self._handler, message)
        result = await loop.run_in_executor(self._pool, copy_context().run, handle)
        if inspect.isawaitable(result):  # of a lambda, say, that calls a coroutine function
            await result
