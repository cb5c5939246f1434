"""The two watermarks, flushed and replicated, and the sends that wait for them.

See docs/storage/durability.md#what-is-acknowledged-when.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import decode
from roquet.transport.connection import Connection

log = logging.getLogger(__name__)


class Replicas(Protocol):
    """What is known of the slaves."""

    @property
    def replicated_to(self) -> int:
        """Bytes of the log that at least one live slave has."""
        ...

    @property
    def slave_count(self) -> int: ...

    @property
    def why_no_slave(self) -> str: ...


@dataclass(frozen=True, slots=True)
class AckConfig:
    """Which promises a SEND_OK makes; times in ms, `fall_behind_max` in bytes, `waiting_max` in sends."""

    flush: bool
    replicate: bool
    flush_timeout_ms: int = 5000
    slave_timeout_ms: int = 3000
    fall_behind_max: int = 256 * 1024 * 1024
    waiting_max: int = 100_000


@dataclass(slots=True)
class _Held:
    """One send whose answer waits: ready once both watermarks have passed `end`."""

    end: int
    connection: Connection
    answer: bytes
    needs_slave: bool
    held_ms: int
    tells: bool = True


class AckGate:
    """Keeps: an answer is held until its promises hold or its time is over, and leaves once; what waits for the same
    is in order of `end`; `missed` counts the answers that said what is missing, by their code.

    :param flushed_to: how much of the log is on disk.
    :param now_ms: the event loop's clock in ms.
    """

    def __init__(
        self,
        config: AckConfig,
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
        self._for_slave: deque[_Held] = deque()
        self._for_disk: deque[_Held] = deque()
        """What waits for the disk alone: it is not held up by what waits for a slave that is gone."""
        self.missed: Counter[ResponseCode] = Counter()
        self._missing: ResponseCode | None = None
        self._disk_failure = ""
        self.waits = config.flush or config.replicate
        """Whether an answer may have to wait at all."""

    def figures(self) -> dict[str, str]:
        """How many answers wait, and how often one said what is missing; for the broker's runtime info."""
        missed = self.missed
        return {
            "putMessageWaiting": str(len(self._for_slave) + len(self._for_disk)),
            "putMessageSlaveNotAvailableTimes": str(missed[ResponseCode.SLAVE_NOT_AVAILABLE]),
            "putMessageFlushSlaveTimeoutTimes": str(missed[ResponseCode.FLUSH_SLAVE_TIMEOUT]),
            "putMessageFlushDiskTimeoutTimes": str(missed[ResponseCode.FLUSH_DISK_TIMEOUT]),
        }

    @property
    def why_busy(self) -> str:
        """Why no send is taken that would have to wait, too; empty while they are."""
        waiting = len(self._for_slave) + len(self._for_disk)
        if waiting < self._config.waiting_max:
            return ""
        return f"[OVERLOAD]{waiting} messages wait for the {'slave' if self._for_slave else 'disk'} already"

    def hold(self, connection: Connection, answer: bytes, end: int, *, tells: bool = True) -> bytes:
        """The answer itself when it can go at once, else b"": it goes when the log up to `end` is safe.

        :param tells: whether it says so when a promise does not hold; else it goes as it is then.
        """
        needs_slave = self._config.replicate
        if needs_slave and (reason := self._why_no_slave()):
            if tells:
                answer = self._missed(answer, ResponseCode.SLAVE_NOT_AVAILABLE, reason)
            if not self._config.flush:
                return answer
            needs_slave = False
        if self._disk_failure and self._config.flush and self._flushed_to() < end:
            return self._lost(answer)
        held = _Held(end, connection, answer, needs_slave, int(self._now_ms()), tells)
        waiting = self._for_slave if needs_slave else self._for_disk
        if not waiting and self._is_safe(held):
            return answer
        waiting.append(held)
        return b""

    def _why_no_slave(self) -> str:
        """Why a slave cannot be waited for; empty when one can."""
        replicas = self._replicas
        assert replicas is not None, "only a master replicates"
        if not replicas.slave_count:
            return f"the message is stored, but {replicas.why_no_slave}"
        behind = self._log_end() - replicas.replicated_to
        if behind >= self._config.fall_behind_max:
            return f"the message is stored, but the nearest slave is {behind} bytes behind"
        return ""

    def _is_safe(self, held: _Held) -> bool:
        if self._config.flush and self._flushed_to() < held.end:
            return False
        return not held.needs_slave or self._replicated_to >= held.end

    @property
    def _replicated_to(self) -> int:
        return 0 if self._replicas is None else self._replicas.replicated_to

    def advance(self) -> None:
        """Answer what has become safe; called when a watermark moved."""
        ready: dict[Connection, list[bytes]] = {}
        for waiting in (self._for_slave, self._for_disk):
            while waiting and self._is_safe(waiting[0]):
                held = waiting.popleft()
                ready.setdefault(held.connection, []).append(held.answer)
                if self._missing is not None and held.needs_slave is self._config.replicate:
                    self._all_is_well()
        for connection, answers in ready.items():
            connection.send(b"".join(answers))

    def disk_failed(self, why: str) -> None:
        """What is not on disk by now never will be, as far as anybody can tell: who waits for that is refused."""
        self._disk_failure = why
        if not self._config.flush:
            return
        flushed_to = self._flushed_to()
        for waiting in (self._for_slave, self._for_disk):
            lost = [held for held in waiting if held.end > flushed_to]
            for held in lost:
                waiting.remove(held)
                held.connection.send(self._lost(held.answer))

    def _lost(self, answer: bytes) -> bytes:
        """Whatever was to be answered: a code with which Apache's producers try another broker."""
        response = decode(answer[4:])
        response.code = ResponseCode.SERVICE_NOT_AVAILABLE
        response.remark = f"the message may be lost, the disk has failed: {self._disk_failure}"
        return response.encode()

    def _all_is_well(self) -> None:
        log.warning("sends are answered as their promise says again")
        self._missing = None

    def expire(self) -> None:
        """Answer what has waited too long with the code that says what is missing."""
        now_ms = self._now_ms()
        for waiting in (self._for_slave, self._for_disk):
            while waiting:
                held = waiting[0]
                code, remark = self._overdue(held, int(now_ms - held.held_ms))
                if code is None:
                    break
                waiting.popleft()
                held.connection.send(
                    self._missed(held.answer, code, remark) if held.tells else held.answer
                )

    def _overdue(self, held: _Held, waited_ms: int) -> tuple[ResponseCode | None, str]:
        config = self._config
        if (
            held.needs_slave
            and waited_ms >= config.slave_timeout_ms
            and self._replicated_to < held.end
        ):
            return ResponseCode.FLUSH_SLAVE_TIMEOUT, self._why_late(held, waited_ms)
        if config.flush and waited_ms >= config.flush_timeout_ms and self._flushed_to() < held.end:
            remark = f"the message is stored, but not on disk after {waited_ms} ms"
            return ResponseCode.FLUSH_DISK_TIMEOUT, remark
        return None, ""

    def _why_late(self, held: _Held, waited_ms: int) -> str:
        assert self._replicas is not None
        stored = f"the message is stored, but after {waited_ms} ms"
        if not self._replicas.slave_count:
            return f"{stored} {self._replicas.why_no_slave}"
        return f"{stored} the nearest slave is {held.end - self._replicated_to} bytes behind it"

    def _missed(self, answer: bytes, code: ResponseCode, remark: str) -> bytes:
        """An encoded answer with another code; one that says something is missing already keeps its code."""
        response = decode(answer[4:])
        if response.code != ResponseCode.SUCCESS:
            return answer
        response.code, response.remark = code, remark
        self.missed[code] += 1
        if code is not self._missing:
            log.warning("sends are answered %s from now on: %s", code.name, remark)
            self._missing = code
        return response.encode()
