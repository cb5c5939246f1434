"""The answer to GET_BROKER_RUNTIME_INFO: a broker's state, by Apache's names.

Tools build table rows from these values. One missing name leaves the whole row blank
(docs/pitfalls.md#trap-47).

See docs/broker/statistics.md#runtime-information and
docs/protocol/administration.md#runtime-information.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.offsets.consumer_offsets import DelayOffsets
from roquet.common.steps import Steps
from roquet.protocol.records.message import SCHEDULE_TOPIC
from roquet.protocol.records.record import decode
from roquet.protocol.remoting.codes import VERSION, VERSION_NAME
from roquet.storage.store import Store

_NO_BUFFER_LIMIT: Final = 2**31 - 1
_COUNTS: Final = (
    "putMessageFailedTimes",
    "getMessageEntireTimeMax",
    "dispatchMaxBuffer",
    "sendThreadPoolQueueSize",
    "pullThreadPoolQueueSize",
    "queryThreadPoolQueueSize",
    "EndTransactionQueueSize",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "pageCacheLockTimeMills",
)
_NOT_MEASURED: Final = dict.fromkeys(_COUNTS, "0")
"""Values of figures that are not measured. No request waits in a queue here (decision 0012), so 0
is the true size of the queues."""


class RuntimeInfo:
    """Collects the runtime information of one broker.

    :param measured: give further figures, by name.
    :param measured_in_steps: gives further figures that take long to compute.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: Store,
        delays: DelayOffsets,
        now_ms: Callable[[], int],
        measured: Sequence[Callable[[], Mapping[str, str]]],
        measured_in_steps: Callable[[], Steps[Mapping[str, str]]],
    ) -> None:
        self._config = config
        self._store = store
        self._delays = delays
        self._now_ms = now_ms
        self._measured = measured
        self._measured_in_steps = measured_in_steps
        self._started_ms = now_ms()

    def table(self) -> Steps[dict[str, str]]:
        """All figures, sorted by name."""
        in_steps = yield from self._measured_in_steps()
        figures = {
            **_NOT_MEASURED,
            **self._broker(),
            **self._log(),
            **self._delay_levels(),
            **self._drives(),
        }
        for measured in self._measured:
            figures |= measured()
        figures |= in_steps
        return dict(sorted(figures.items()))

    def _broker(self) -> dict[str, str]:
        java = self._config.java
        return {
            "bootTimestamp": str(self._started_ms),
            "runtime": duration_text(self._now_ms() - self._started_ms),
            "brokerVersion": str(VERSION),
            "brokerVersionDesc": VERSION_NAME,
            "startAcceptSendRequestTimeStamp": str(
                self._config.start_accept_send_request_time_stamp
            ),
            "sendThreadPoolQueueCapacity": str(java.send_thread_pool_queue_capacity),
            "pullThreadPoolQueueCapacity": str(self._config.pull_thread_pool_queue_capacity),
            "queryThreadPoolQueueCapacity": str(java.query_thread_pool_queue_capacity),
            "EndTransactionThreadPoolQueueCapacity": str(java.end_transaction_pool_queue_capacity),
        }

    def _log(self) -> dict[str, str]:
        log = self._store.log
        return {
            "commitLogMinOffset": str(log.start),
            "commitLogMaxOffset": str(log.end),
            "storeFailure": str(self._store.failure or ""),
            "commitLogHoles": str(self._store.dispatch.holes),
            "commitLogHoleBytes": str(self._store.dispatch.hole_bytes),
            "dispatchBehindBytes": str(self._store.dispatch.lag),
            "dispatchBehindReason": self._store.dispatch.lag_reason,
            "earliestMessageTimeStamp": str(self._earliest_ms(log.start)),
            "remainHowManyDataToFlush": size_text(log.end - log.flushed_to),
            "remainHowManyDataToCommit": size_text(log.end - log.readable_to),
            "remainTransientStoreBufferNumbs": str(_NO_BUFFER_LIMIT),
        }

    def _earliest_ms(self, physical: int) -> int:
        record = self._store.log.record_at(physical)
        return -1 if record is None else decode(record).store_ms

    def _delay_levels(self) -> dict[str, str]:
        return {
            f"scheduleMessageOffset_{level}": (
                f"{offset},{self._store.max_offset(SCHEDULE_TOPIC, level - 1)}"
            )
            for level, offset in sorted(self._delays.offsets.items())
        }

    def _drives(self) -> dict[str, str]:
        folders = self._config.commit_log_folders
        ratios = {folder: self._used_ratio(folder) for folder in folders}
        total, free = map(sum, zip(*map(_space, folders), strict=True))
        return {
            "commitLogDiskRatio": min(ratios.values(), key=float),
            **{f"commitLogDiskRatio_{folder}": ratio for folder, ratio in ratios.items()},
            "consumeQueueDiskRatio": self._used_ratio(self._config.store_folder),
            "commitLogDirCapacity": f"Total : {size_text(total)}, Free : {size_text(free)}.",
        }

    def _used_ratio(self, folder: Path) -> str:
        """The used share of the folder's drive, by which messages are refused and files deleted.

        -1 if it cannot be found out.
        """
        try:
            return f"{self._store.disk.used_ratio(folder):.2f}"
        except OSError:
            return "-1.0"


def _space(folder: Path) -> tuple[int, int]:
    """Total and free bytes of the folder's disk; zeros if they cannot be found out."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return 0, 0
    return usage.total, usage.free


def duration_text(span_ms: int) -> str:
    """A duration in Apache's form: `[ 1 days, 2 hours, 3 minutes, 4 seconds ]`."""
    minutes, seconds = divmod(span_ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def size_text(size: int) -> str:
    """A size in Apache's form, in powers of 1024: `1.5 KiB`."""
    if size < 1024:
        return f"{size} B"
    power = min(int(math.log2(size) // 10), 6)
    return f"{size / 1024**power:.1f} {'KMGTPE'[power - 1]}iB"
