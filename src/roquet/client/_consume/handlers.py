"""Runs a handler of the application for each message."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

from roquet.client._consume.message_stream import MessageStream
from roquet.client.received import ReceivedMessage
from roquet.common.callables import is_coroutine_function
from roquet.common.callback_threads import CallbackThreads, ThreadFunction
from roquet.common.loop_time import now_s

log = logging.getLogger(__name__)

Handler: TypeAlias = (
    Callable[[ReceivedMessage], Awaitable[object]] | Callable[[ReceivedMessage], object]
)
"""Handles a message. Its end acknowledges the message, an exception has it delivered again."""


class HandlerRun:
    """Runs a handler for the messages of a consumer, several at a time.

    A coroutine function runs in the event loop, any other function in threads, so that it may
    block. Nothing can cancel what runs in a thread: its message is settled when it ends.

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

    async def run(self) -> None:
        """Handle messages until the consumer is stopped or closed, and its handlers are done."""
        threads = CallbackThreads("roquet-handler")
        in_threads: ThreadFunction[[ReceivedMessage], object] | None = None
        if isinstance(self._handler, ThreadFunction):
            in_threads = self._handler
        elif not is_coroutine_function(self._handler):
            in_threads = threads.runs(self._handler)
        try:
            async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as group:
                self.workers.update(
                    group.create_task(self._work(in_threads), name=f"handler {number}")
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
            threads.close()

    async def _work(self, in_threads: ThreadFunction[[ReceivedMessage], object] | None) -> None:
        loop = asyncio.get_running_loop()
        while (message := await self._messages.next()) is not None:
            in_thread: asyncio.Future[object] | None = None
            try:
                async with message:
                    if in_threads is None:
                        result = self._handler(message)
                    else:
                        # the handler may settle the message in its thread
                        message.settle_in_this_thread(loop.call_soon_threadsafe)
                        in_thread = in_threads.begin(message)
                        result = await asyncio.shield(in_thread)
                    # also of a lambda, say, that calls a coroutine function
                    if inspect.isawaitable(result):
                        await result
            except asyncio.CancelledError:
                worker = asyncio.current_task()
                if worker is None or worker.cancelling():
                    if in_thread is not None:
                        in_thread.add_done_callback(partial(_settle_at_end, message))
                    elif not self._messages.stopped.is_set():
                        # The consumer goes on without this run, an ordered one only after this.
                        message.retry()
                    self._messages.handler_cancelled(message)
                    raise
                # something that the handler awaited was cancelled, not the handler
                log.exception(
                    "message failed: msgId=%s topic=%s", message.message_id, message.topic
                )
                message.retry()


def _settle_at_end(message: ReceivedMessage, in_thread: asyncio.Future[Any]) -> None:
    """Settle the message of a thread that was at work when its run was cancelled, at its end.

    Before that the message must not come again: two would work on it at the same time.
    """
    error = in_thread.exception()
    if error is None and not inspect.isawaitable(in_thread.result()):
        message.ack()
        return
    log.error(
        "message failed after its run was cancelled: msgId=%s topic=%s",
        message.message_id,
        message.topic,
        exc_info=error,
    )
    message.retry()
