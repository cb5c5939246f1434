"""Calls the hooks of a client. Their exceptions are logged and stay here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Self, TypeAlias

from roquet.client.hook import CallEvent, ConsumeEvent, ConsumeOutcome, Hook, SendEvent
from roquet.client.received import ReceivedMessage
from roquet.common.loop_time import now_s
from roquet.protocol.records.message import Message

log = logging.getLogger(__name__)

Entered: TypeAlias = tuple[int, AbstractContextManager[object]]
"""The place of a hook, and its context manager, which was entered."""


def is_any(hooks: Sequence[Hook], *names: str) -> bool:
    """Whether a hook overrides one of these methods."""
    return any(_overrides(hook, name) for hook in hooks for name in names)


def _overrides(hook: Hook, name: str) -> bool:
    return getattr(type(hook), name) is not getattr(Hook, name)


class _Method:
    """One method of all hooks that override it. No exception of a hook changes what is done."""

    def __init__(self, hooks: Sequence[Hook], name: str, *, is_last_first: bool = False) -> None:
        self._name = name
        order = reversed(hooks) if is_last_first else hooks
        self._hooks = [hook for hook in order if _overrides(hook, name)]
        self._methods: list[Callable[[Any], Any]] = [getattr(hook, name) for hook in self._hooks]
        self._failed: set[int] = set()
        """The places of the hooks whose exception was logged."""

    def __call__(self, event: object) -> None:
        """Call the method of each hook."""
        for place, method in enumerate(self._methods):
            try:
                method(event)
            except Exception:
                self._log(place)

    def _log(self, place: int) -> None:
        """Log the exception of a hook that is being handled, the first time."""
        if place not in self._failed:
            self._failed.add(place)
            log.exception(
                "hook failed, its further failures are not logged: hook=%s method=%s",
                type(self._hooks[place]).__name__,
                self._name,
            )

    def enter(self, event: object) -> list[Entered]:
        """Enter the context managers that the method of each hook returns."""
        entered: list[Entered] = []
        for place, method in enumerate(self._methods):
            try:
                manager = method(event)
                if manager is not None:
                    manager.__enter__()
                    entered.append((place, manager))
            except Exception:
                self._log(place)
        return entered

    def leave(self, entered: Sequence[Entered], error: BaseException | None) -> None:
        """Leave what was entered."""
        of_error = (
            (None, None, None) if error is None else (type(error), error, error.__traceback__)
        )
        for place, manager in reversed(entered):
            try:
                manager.__exit__(*of_error)
            except Exception:
                self._log(place)


@contextmanager
def _around(before: _Method, after: _Method, event: SendEvent | CallEvent) -> Iterator[None]:
    before(event)
    began_s = now_s()
    try:
        yield
    except BaseException as error:
        event.error = error
        raise
    finally:
        event.latency_ms = (now_s() - began_s) * 1000
        after(event)


class SendHooks:
    """The hooks of a producer."""

    def __init__(self, hooks: Sequence[Hook], client_id: str, group: str) -> None:
        self._client_id = client_id
        self._group = group
        self._before = _Method(hooks, "before_send")
        self._after = _Method(hooks, "after_send", is_last_first=True)

    @classmethod
    def of(cls, hooks: Sequence[Hook], client_id: str, group: str) -> Self | None:
        """The hooks of a producer; None if none has a method for sends."""
        if not is_any(hooks, "before_send", "after_send"):
            return None
        return cls(hooks, client_id, group)

    @contextmanager
    def sending(self, *messages: Message, is_one_way: bool = False) -> Iterator[SendEvent]:
        """Around a send. The messages to send are those of the event, which gets the results."""
        event = SendEvent(self._client_id, self._group, messages, is_one_way)
        with _around(self._before, self._after, event):
            yield event


class CallHooks:
    """The hooks of a session."""

    def __init__(self, hooks: Sequence[Hook], client_id: str) -> None:
        self._client_id = client_id
        self._before = _Method(hooks, "before_call")
        self._after = _Method(hooks, "after_call", is_last_first=True)

    @contextmanager
    def calling(
        self, address: str, code: int, count: int = 1, *, is_one_way: bool = False
    ) -> Iterator[CallEvent]:
        """Around a request. The event gets the response code."""
        event = CallEvent(self._client_id, address, code, count, is_one_way)
        with _around(self._before, self._after, event):
            yield event


class ConsumeHooks:
    """The hooks of a consumer."""

    def __init__(self, hooks: Sequence[Hook], client_id: str, group: str) -> None:
        self.client_id: Final = client_id
        self.group: Final = group
        self.before: Final = _Method(hooks, "before_consume")
        self.handling: Final = _Method(hooks, "handling")
        self.after: Final = _Method(hooks, "after_consume", is_last_first=True)

    @classmethod
    def of(cls, hooks: Sequence[Hook], client_id: str, group: str) -> Self | None:
        """The hooks of a consumer; None if none has a method for deliveries."""
        if not is_any(hooks, "before_consume", "handling", "after_consume"):
            return None
        return cls(hooks, client_id, group)

    def delivered(self, message: ReceivedMessage, ended: Callable[[], object]) -> ConsumeWatch:
        """Called with a message that is delivered now.

        :param ended: called once, when the message is settled.
        """
        return ConsumeWatch(self, message, ended)


class ConsumeWatch:
    """One delivered message that hooks are told of.

    Invariant: `ended` and the hooks are told of its end once.
    """

    def __init__(
        self, hooks: ConsumeHooks, message: ReceivedMessage, ended: Callable[[], object]
    ) -> None:
        self._hooks = hooks
        self._ended = ended
        self._event = ConsumeEvent(hooks.client_id, hooks.group, message)
        self._entered: list[list[Entered]] = []
        hooks.before(self._event)
        self._began_s = now_s()

    def enter(self) -> None:
        """A block that handles the message begins."""
        self._entered.append(self._hooks.handling.enter(self._event))

    def leave(self, error: BaseException | None) -> None:
        """The block ends that began last."""
        if error is not None:
            self._event.error = error
        self._hooks.handling.leave(self._entered.pop(), error)

    def settled(self, delay_level: int | None) -> None:
        """The application has settled the message."""
        if delay_level is None:
            self.end(ConsumeOutcome.ACKNOWLEDGED)
        elif self._event.error is not None:
            self.end(ConsumeOutcome.FAILED)
        else:
            self.end(ConsumeOutcome.RETRIED)

    def end(self, outcome: ConsumeOutcome) -> None:
        """Tell the hooks what became of the message, unless they know."""
        if self._event.outcome is None:
            self._event.outcome = outcome
            self._event.latency_ms = (now_s() - self._began_s) * 1000
            self._ended()
            self._hooks.after(self._event)
