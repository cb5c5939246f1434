"""The blocking producer of transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, Unpack

from roquet.client import transactions
from roquet.client.config import ClientConfig, NameServers
from roquet.client.producer import ProducerOptions
from roquet.client.received import ReceivedMessage
from roquet.client.transactions import TransactionResult, TransactionState
from roquet.common.callback_threads import CallbackThreads
from roquet.protocol.records.message import Message
from roquet.sync.blocking_user import BlockingUser, underneath
from roquet.sync.callbacks import Caller, check_plain
from roquet.sync.producer import Producer

__all__ = ["TransactionProducer"]

Local: TypeAlias = Callable[[Message, str], TransactionState]
"""Message, transaction id -> outcome: the local transaction."""
Check: TypeAlias = Callable[[ReceivedMessage], TransactionState]
"""Half message -> outcome. The message's `message_id` is the transaction id."""


class TransactionProducer(Producer):
    """A producer of messages that are delivered only if a local transaction commits.

    It is `roquet.TransactionProducer` for code without event loop, with the same arguments.

    :param check: called in a thread of its own pool for transactions whose outcome a broker does
        not know. If it raises, the transaction stays open and the broker asks again.
    :param topics: topics whose brokers get a heartbeat as soon as this producer starts.
    :raises ConfigError: an argument cannot be used; the message names it.
    """

    def __init__(
        self,
        name_server: NameServers | ClientConfig | BlockingUser[Any],
        group: str,
        check: Check,
        *,
        topics: Iterable[str] = (),
        **options: Unpack[ProducerOptions],
    ) -> None:
        shared, owner = underneath(name_server)
        threads = CallbackThreads("roquet-check")
        check_plain("check", check)
        self._transactions = transactions.TransactionProducer(
            shared, group, threads.runs(check), topics=topics, **options
        )
        BlockingUser.__init__(self, self._transactions, owner, threads)

    def send_in_transaction(
        self, message: Message, local: Local, *, timeout_ms: int | None = None
    ) -> TransactionResult:
        """Store a half message, run the local transaction, and commit or roll back the message.

        `local` runs in the thread of the caller, so that it has the database connection of that
        thread. See `roquet.TransactionProducer.send_in_transaction`.
        """
        check_plain("local", local)
        caller = Caller()
        return self._call_with(
            caller,
            lambda: self._transactions.send_in_transaction(
                message, caller.runs(local), timeout_ms=timeout_ms
            ),
        )
