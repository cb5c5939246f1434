"""Holds answers to sends until the log is flushed and replicated as far as SEND_OK promises.

See docs/storage/durability.md#what-is-acknowledged-when.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.config.store import BrokerRole
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import decode
from roquet.transport.connection import Connection

log = logging.getLogger(__name__)


class LogEnds(Protocol):
    """How far the log of this broker reaches, as physical offsets."""

    @property
    def end(self) -> int: ...

    @property
    def flushed_to(self) -> int: ...


class ConnectedSlaves(Protocol):
    """The connected slaves of this master."""

    @property
    def replicated_to(self) -> int:
        """The highest physical offset that a live slave has acknowledged."""
        ...

    def has_copy(self, end: int) -> bool:
        """Whether a live slave has the record that ends at the physical offset `end`."""
        ...

    @property
    def slave_count(self) -> int: ...

    @property
    def why_no_slave(self) -> str:
        """Why no slave counts as a replica, as a clause for remarks."""
        ...


@dataclass(slots=True)
class _Held:
    """One held answer: it is sent once the log is flushed and replicated up to `end`.

    :param reports_miss: see `AckGate.hold`.
    """

    end: int
    connection: Connection
    answer: bytes
    needs_slave: bool
    held_ms: int
    reports_miss: bool = True


class AckGate:
    """Holds answers to sends until disk and slaves have what SEND_OK promises, or time runs out.

    Invariant: each answer leaves once; each deque is in order of `end`. `_missed_counts` has the
    number of answers without SEND_OK, by their code.

    :param slaves: the slaves; None on a slave.
    :param now_ms: the event loop's clock in ms.
    """

    def __init__(
        self,
        config: BrokerConfig,
        log: LogEnds,
        slaves: ConnectedSlaves | None,
        now_ms: Callable[[], float],
    ) -> None:
        self._flushes = config.store.is_sync_flush
        """Whether SEND_OK means that the message is on disk."""
        self._replicates = config.replication.broker_role is BrokerRole.SYNC_MASTER
        """Whether SEND_OK means that a slave has the message."""
        self._flush_timeout_ms = config.store.sync_flush_timeout
        self._slave_timeout_ms = config.replication.slave_timeout
        self._fall_behind_max = config.replication.ha_slave_fallbehind_max
        """Bytes of lag from which on no slave is waited for."""
        self._waiting_max = config.waiting_sends_max
        """Answers that may be held; with more, sends are refused."""
        self._log = log
        self._slaves = slaves
        self._now_ms = now_ms
        self._for_slave: deque[_Held] = deque()
        self._for_disk: deque[_Held] = deque()
        """Answers that wait for the disk only: a slave that is gone does not delay them."""
        self._missed_counts: Counter[ResponseCode] = Counter()
        self._last_missed: ResponseCode | None = None
        """The code of the failure that was logged last; None since sends get SEND_OK again."""
        self._disk_failure = ""
        self.waits = self._flushes or self._replicates
        """Whether any answer may have to wait."""

    def figures(self) -> dict[str, str]:
        """The counts of held answers and of answers without SEND_OK, for the runtime info."""
        missed = self._missed_counts
        return {
            "putMessageWaiting": str(len(self._for_slave) + len(self._for_disk)),
            "putMessageSlaveNotAvailableTimes": str(missed[ResponseCode.SLAVE_NOT_AVAILABLE]),
            "putMessageFlushSlaveTimeoutTimes": str(missed[ResponseCode.FLUSH_SLAVE_TIMEOUT]),
            "putMessageFlushDiskTimeoutTimes": str(missed[ResponseCode.FLUSH_DISK_TIMEOUT]),
        }

    @property
    def room(self) -> int:
        """How many more answers may be held before sends are refused."""
        return self._waiting_max - len(self._for_slave) - len(self._for_disk)

    @property
    def why_busy(self) -> str:
        """Why sends are refused: too many answers are held. Empty while they are accepted."""
        if self.room > 0:
            return ""
        waiting = len(self._for_slave) + len(self._for_disk)
        awaited = "slave" if self._for_slave else "disk"
        return f"[OVERLOAD]{waiting} messages wait for the {awaited} already"

    def hold(
        self, connection: Connection, answer: bytes, end: int, *, reports_miss: bool = True
    ) -> bytes | None:
        """Hold an answer until the log is flushed and replicated up to `end`.

        :param answer: the encoded frame.
        :param end: physical offset after the message.
        :param reports_miss: whether the answer's code changes if a promise is not kept in time; if
            False, the answer is then sent unchanged.
        :returns: the answer if it can be sent at once, else None.
        """
        needs_slave = self._replicates
        if needs_slave and (reason := self._why_no_slave()):
            if reports_miss:
                answer = self._with_miss(answer, ResponseCode.SLAVE_NOT_AVAILABLE, reason)
            if not self._flushes:
                return answer
            needs_slave = False
        if self._disk_failure and self._flushes and self._log.flushed_to < end:
            return self._lost(answer)
        held = _Held(end, connection, answer, needs_slave, int(self._now_ms()), reports_miss)
        waiting = self._for_slave if needs_slave else self._for_disk
        if not waiting and self._is_safe(held):  # otherwise it leaves after those before it
            return answer
        waiting.append(held)
        return None

    def _why_no_slave(self) -> str:
        """Why waiting for a slave is useless, as a remark; empty if it is not."""
        slaves = self._slaves
        assert slaves is not None, "only a master replicates"
        if not slaves.slave_count:
            return f"the message is stored, but {slaves.why_no_slave}"
        lag = self._log.end - slaves.replicated_to
        if lag >= self._fall_behind_max:
            return f"the message is stored, but the nearest slave is {lag} bytes behind"
        return ""

    def _is_safe(self, held: _Held) -> bool:
        if self._flushes and self._log.flushed_to < held.end:
            return False
        return not held.needs_slave or self._has_copy(held)

    def _has_copy(self, held: _Held) -> bool:
        return self._slaves is not None and self._slaves.has_copy(held.end)

    def advance(self) -> None:
        """Send the held answers whose promises are kept; called after flushes and slave reports."""
        ready: dict[Connection, list[bytes]] = {}
        for waiting in (self._for_slave, self._for_disk):
            while waiting and self._is_safe(waiting[0]):
                held = waiting.popleft()
                ready.setdefault(held.connection, []).append(held.answer)
                # With SYNC_MASTER, an answer that waited for the disk alone does not count: it came
                # while there was no slave to wait for, and has the code of that.
                if self._last_missed is not None and held.needs_slave is self._replicates:
                    self._recovered()
        for connection, answers in ready.items():
            connection.send(b"".join(answers))

    def disk_failed(self, why: str) -> None:
        """Answer all sends that wait for the disk with an error: their messages may be lost.

        After a failed sync nothing is synced any more.

        :param why: the error, for the remark.
        """
        self._disk_failure = why
        if not self._flushes:
            return
        flushed_to = self._log.flushed_to
        for waiting in (self._for_slave, self._for_disk):
            lost = [held for held in waiting if held.end > flushed_to]
            for held in lost:
                waiting.remove(held)
                held.connection.send(self._lost(held.answer))

    def _lost(self, answer: bytes) -> bytes:
        """The answer with SERVICE_NOT_AVAILABLE, on which Apache's producers try another broker."""
        response = decode(answer[4:])
        code = ResponseCode.SERVICE_NOT_AVAILABLE
        remark = f"the message may be lost, the disk has failed: {self._disk_failure}"
        return replace(response, code=code, remark=remark).encode()

    def _recovered(self) -> None:
        log.warning("sends are acknowledged with SEND_OK again")
        self._last_missed = None

    def expire(self) -> None:
        """Send the held answers whose time is over, with the code of the promise not kept."""
        now_ms = self._now_ms()
        count = len(self._for_slave)
        for waiting in (self._for_slave, self._for_disk):
            while waiting:
                held = waiting[0]
                code, remark = self._overdue(held, int(now_ms - held.held_ms))
                if code is None:
                    break
                waiting.popleft()
                held.connection.send(
                    self._with_miss(held.answer, code, remark) if held.reports_miss else held.answer
                )
        if len(self._for_slave) < count:
            self.advance()  # a slave that was empty may have those behind one that it lacks

    def _overdue(self, held: _Held, waited_ms: int) -> tuple[ResponseCode | None, str]:
        if held.needs_slave and waited_ms >= self._slave_timeout_ms and not self._has_copy(held):
            return ResponseCode.FLUSH_SLAVE_TIMEOUT, self._why_late(held, waited_ms)
        if (
            self._flushes
            and waited_ms >= self._flush_timeout_ms
            and self._log.flushed_to < held.end
        ):
            remark = f"the message is stored, but not on disk after {waited_ms} ms"
            return ResponseCode.FLUSH_DISK_TIMEOUT, remark
        return None, ""

    def _why_late(self, held: _Held, waited_ms: int) -> str:
        assert self._slaves is not None
        stored = f"the message is stored, but after {waited_ms} ms"
        if not self._slaves.slave_count:
            return f"{stored} {self._slaves.why_no_slave}"
        behind = held.end - self._slaves.replicated_to
        if behind <= 0:
            return f"{stored} the slaves that have it are gone, and the one that is there was empty"
        return f"{stored} the nearest slave is {behind} bytes behind it"

    def _with_miss(self, answer: bytes, code: ResponseCode, remark: str) -> bytes:
        """The encoded answer with another code and remark; a code other than SUCCESS stays."""
        response = decode(answer[4:])
        if response.code != ResponseCode.SUCCESS:
            return answer
        self._missed_counts[code] += 1
        if code is not self._last_missed:
            log.warning(
                "sends are stored, but not acknowledged with SEND_OK: status=%s reason=%s",
                code.name,
                remark,
            )
            self._last_missed = code
        return replace(response, code=code, remark=remark).encode()
