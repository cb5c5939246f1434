"""Traces what a consumer gives to the application, and how that ends."""

from __future__ import annotations

from collections.abc import Callable

from roquet.client._send.trace import TraceSender
from roquet.client._send.trace_records import (
    REGION,
    TRACE_SWITCH,
    DeliveredRecord,
    Outcome,
    SettledRecord,
    TracedMessage,
)
from roquet.client._send.unique_key import UniqueKeys
from roquet.client.received import ReceivedMessage
from roquet.common.loop_time import now_s


class ConsumeTrace:
    """Traces the messages of a consumer.

    :param sender: sends the records.
    """

    def __init__(self, sender: TraceSender) -> None:
        self.sender = sender
        session = sender.session
        self._request_ids = UniqueKeys.of_client(session.client_id, session.runtime)

    def delivered(self, message: ReceivedMessage) -> Callable[[Outcome], None] | None:
        """Trace that a message is given to the application, unless it says not to.

        :returns: what to call when the message is settled; None if it is not traced.
        """
        sender, properties = self.sender, message.properties
        if not sender.traces(message.topic) or properties.get(TRACE_SWITCH) == "false":
            return None
        traced = TracedMessage.of(message.topic, message.message_id, properties)
        request_id, began_s = self._request_ids.next(), now_s()
        runtime, group = sender.session.runtime, sender.group
        sender.add(
            DeliveredRecord(
                runtime.now_ms(),
                properties.get(REGION),
                group,
                request_id,
                traced,
                message.reconsume_times,
            )
        )

        def settled(outcome: Outcome) -> None:
            cost_ms = int((now_s() - began_s) * 1000)
            sender.add(SettledRecord(request_id, traced, cost_ms, outcome, runtime.now_ms(), group))

        return settled
