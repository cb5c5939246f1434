"""Hooks: what an application adds to the sends, deliveries and requests of its clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

from roquet.client.received import ReceivedMessage
from roquet.client.send_result import SendResult
from roquet.common.callables import is_coroutine_function
from roquet.errors import ConfigError
from roquet.protocol.records.message import Message

__all__ = ["CallEvent", "ConsumeEvent", "ConsumeOutcome", "Hook", "SendEvent"]

_ADDED_LATER: Final = "0" * 512
"""As long as what a client adds to the properties of a hook: a unique key, and a namespace."""


@dataclass(slots=True, eq=False)
class SendEvent:
    """One send of an application, with all its tries.

    - `client_id` and `group` are the producer's.
    - `messages` are sent: one, or those of a batch. `add_properties` replaces them by others.
    - `is_one_way`: nobody waits for an answer.
    - `results` has one result per message once the send succeeded; none if it was one-way.
    - `error` is what it raised, or None. `latency_ms` is the time it took.
    - `notes` is for what a hook keeps until the end.
    """

    client_id: str
    group: str
    messages: Sequence[Message]
    is_one_way: bool = False
    results: Sequence[SendResult] = ()
    error: BaseException | None = None
    latency_ms: float = 0.0
    notes: dict[object, Any] = field(default_factory=dict)

    def add_properties(self, properties: Mapping[str, str]) -> None:
        """Add properties to all messages. Only `Hook.before_send` may do that.

        :raises MessageError: a property is not allowed, or a message would have more than brokers
            take. The messages are as before.
        """
        messages = [
            replace(message, properties={**message.properties, **properties})
            for message in self.messages
        ]
        for message in messages:
            message.wire_properties(_ADDED_LATER)
        self.messages = messages


class ConsumeOutcome(Enum):
    """What became of a message that was delivered to the application.

    - ACKNOWLEDGED: it is consumed.
    - RETRIED: the application called `retry`.
    - FAILED: an exception left the handler or the block; the message comes again.
    - EXPIRED: it was not settled within `consume_timeout_ms`; it comes again.
    - UNSETTLED: the consumer was closed before the message was settled; it comes again.
    """

    ACKNOWLEDGED = "acknowledged"
    RETRIED = "retried"
    FAILED = "failed"
    EXPIRED = "expired"
    UNSETTLED = "unsettled"


@dataclass(slots=True, eq=False)
class ConsumeEvent:
    """One delivery of a message to the application, until it is settled.

    - `client_id` and `group` are the consumer's, `message` is delivered.
    - `outcome` is None until the message is settled. `latency_ms` is the time it took.
    - `error` is the exception that left the handler or the block, or None.
    - `notes` is for what a hook keeps until the end.
    """

    client_id: str
    group: str
    message: ReceivedMessage
    outcome: ConsumeOutcome | None = None
    error: BaseException | None = None
    latency_ms: float = 0.0
    notes: dict[object, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class CallEvent:
    """One request to a broker or a name server.

    - `client_id` is the client's, `address` the server's.
    - `code` is the request code; `count` requests with it leave together.
    - `is_one_way`: nobody waits for an answer.
    - `response_code` is that of the answer, of the last one if there are several; or None.
    - `error` is what the call raised, or None: a response code is no error.
    - `latency_ms` is the time it took.
    - `notes` is for what a hook keeps until the end.
    """

    client_id: str
    address: str
    code: int
    count: int = 1
    is_one_way: bool = False
    response_code: int | None = None
    error: BaseException | None = None
    latency_ms: float = 0.0
    notes: dict[object, Any] = field(default_factory=dict)


class Hook:
    """The base class of hooks. A hook overrides the methods that it needs.

        class SlowSends(Hook):
            def after_send(self, event):
                if event.latency_ms > 100:
                    log.warning("slow send: topic=%s", event.messages[0].topic)

        async with roquet.connect("127.0.0.1:9876", hooks=[SlowSends()]) as mq:
            ...

    The methods run in the event loop, between the work of the client: they are no coroutines, and
    must be quick. Those that begin with "before" are called in the order of the hooks, the others
    in the opposite order. Each event that began ends once, also after an error or a cancellation.
    An exception of a hook is logged, once per hook and method, and changes nothing.
    """

    def before_send(self, event: SendEvent) -> None:
        """A send begins. This may call `event.add_properties`."""

    def after_send(self, event: SendEvent) -> None:
        """A send has ended, after its last try."""

    def before_consume(self, event: ConsumeEvent) -> None:
        """A message is delivered to the application."""

    def handling(self, _event: ConsumeEvent) -> AbstractContextManager[object] | None:
        """A context manager for an `async with message` block or a handler of `Consumer.run`.

        It is entered before the block and left after it, in the same task. It cannot suppress
        exceptions. For a `with message` block of `roquet.sync` this is called, and the context
        manager is entered and left, in the thread of the block.
        """
        return None

    def after_consume(self, event: ConsumeEvent) -> None:
        """A message was settled."""

    def before_call(self, event: CallEvent) -> None:
        """A request is sent. A send has one per try."""

    def after_call(self, event: CallEvent) -> None:
        """A request was answered, or it failed."""


def check_hooks(hooks: object) -> tuple[Hook, ...]:
    """The hooks of a config.

    :raises ConfigError: one of them is no hook, or has a coroutine function in place of a method.
    """
    if not isinstance(hooks, list | tuple):
        raise ConfigError(f"hooks is {hooks!r}: give a list of hooks")
    for hook in hooks:
        if not isinstance(hook, Hook):
            raise ConfigError(f"hooks: {hook!r} is no hook: give an object of a subclass of Hook")
        for name in vars(Hook):
            if is_coroutine_function(getattr(hook, name)):
                raise ConfigError(
                    f"hooks: {type(hook).__name__}.{name} is a coroutine function: "
                    "the methods of a hook are plain functions, which are called at once"
                )
    return tuple(hooks)
