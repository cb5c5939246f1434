"""The two watermarks, flushed and replicated, and the sends that wait for them (store-and-ha.md 2.6, 5.4)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from roquet.protocol.codes import ResponseCode
from roquet.protocol.command import decode
from roquet.transport.connection import Connection


class Replicas(Protocol):
    """What is known of the slaves."""

    @property
    def replicated_to(self) -> int:
        """Bytes of the log that at least one live slave has."""
        ...

    @property
    def slave_count(self) -> int: ...


@dataclass(frozen=True, slots=True)
class DurabilityConfig:
    """Which promises a SEND_OK makes; times in ms, `fall_behind_max` in bytes."""

    flush: bool
    replicate: bool
    flush_timeout_ms: int = 5000
    slave_timeout_ms: int = 3000
    fall_behind_max: int = 256 * 1024 * 1024


@dataclass(slots=True)
class _Held:
    """One send whose answer waits: ready once both watermarks have passed `end`."""

    end: int
    connection: Connection
    answer: bytes
    needs_slave: bool
    held_ms: int


class Durability:
    """Keeps: `_held` is in order of `end`; an answer leaves it once, when its promises hold or its time is over.

    :param flushed_to: how much of the log is on disk.
    :param now_ms: the event loop's clock in ms.
    """

    def __init__(
        self,
        config: DurabilityConfig,
        flushed_to: Callable[[], int],
        log_end: Callable[[], int],
        replicas: Replicas | None,
        now_ms: Callable[[], float],
    ) -> None:
        self._config = config
        self._flushed_to = flushed_to
        self._log_end = log_end
        self._replicas = replicas
        self._now_ms = now_ms
        self._held: deque[_Held] = deque()
        self.waits = config.flush or config.replicate
        """Whether an answer may have to wait at all."""

    @property
    def held_count(self) -> int:
        return len(self._held)

    def hold(self, connection: Connection, answer: bytes, end: int) -> bytes:
        """The answer itself when it can go at once, else b"": it goes when the log up to `end` is safe."""
        needs_slave = self._config.replicate
        if needs_slave:
            reason = self._why_no_slave()
            if reason:
                if not self._config.flush:
                    return _with_code(answer, ResponseCode.SLAVE_NOT_AVAILABLE, reason)
                answer, needs_slave = _with_code(answer, ResponseCode.SLAVE_NOT_AVAILABLE, reason), False
        held = _Held(end, connection, answer, needs_slave, int(self._now_ms()))
        if not self._held and self._is_safe(held):
            return answer
        self._held.append(held)
        return b""

    def _why_no_slave(self) -> str:
        """Why a slave cannot be waited for; empty when one can."""
        replicas = self._replicas
        if replicas is None or not replicas.slave_count:
            return "the message is stored, but no slave is connected"
        behind = self._log_end() - replicas.replicated_to
        if behind >= self._config.fall_behind_max:
            return f"the message is stored, but the nearest slave is {behind} bytes behind"
        return ""

    def _is_safe(self, held: _Held) -> bool:
        if self._config.flush and self._flushed_to() < held.end:
            return False
        return not held.needs_slave or (self._replicas is not None and self._replicas.replicated_to >= held.end)

    def advance(self) -> None:
        """Answer what has become safe; called when a watermark moved."""
        ready: dict[Connection, list[bytes]] = {}
        while self._held and self._is_safe(self._held[0]):
            held = self._held.popleft()
            ready.setdefault(held.connection, []).append(held.answer)
        for connection, answers in ready.items():
            connection.send(b"".join(answers))

    def expire(self) -> None:
        """Answer what has waited too long with the code that says what is missing."""
        now_ms = self._now_ms()
        while self._held:
            held = self._held[0]
            waited_ms = int(now_ms - held.held_ms)
            code, remark = self._overdue(held, waited_ms)
            if code is None:
                return
            self._held.popleft()
            held.connection.send(_with_code(held.answer, code, remark))

    def _overdue(self, held: _Held, waited_ms: int) -> tuple[ResponseCode | None, str]:
        config = self._config
        replicas = self._replicas
        if held.needs_slave and waited_ms >= config.slave_timeout_ms:
            behind = held.end - (replicas.replicated_to if replicas is not None else 0)
            if behind > 0:
                remark = (
                    f"the message is stored, but after {waited_ms} ms the nearest slave is {behind} bytes behind it"
                )
                return ResponseCode.FLUSH_SLAVE_TIMEOUT, remark
        if config.flush and waited_ms >= config.flush_timeout_ms and self._flushed_to() < held.end:
            remark = f"the message is stored, but not on disk after {waited_ms} ms"
            return ResponseCode.FLUSH_DISK_TIMEOUT, remark
        return None, ""


def _with_code(answer: bytes, code: ResponseCode, remark: str) -> bytes:
    """An encoded answer with another code; one that says something is missing already keeps its code."""
    response = decode(answer[4:])
    if response.code == ResponseCode.SUCCESS:
        response.code, response.remark = code, remark
    return response.encode()
