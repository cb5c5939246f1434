"""Messages are stored unless the drive is too full, and never again after a failed sync."""

from __future__ import annotations

import errno

from roquet.broker.delivery.write_gate import WriteGate


def test_a_full_drive_closes_it_until_there_is_room() -> None:
    gate = WriteGate()
    assert gate.why_closed == ""
    gate.close("more than 90% is used")
    assert gate.why_closed == "more than 90% is used"
    gate.open()
    assert gate.why_closed == ""


def test_after_a_failed_sync_it_stays_closed() -> None:
    gate = WriteGate()
    gate.sync_failed(OSError(errno.EIO, "Input/output error", "/s/commitlog/0"))
    gate.open()
    assert "/s/commitlog/0" in gate.why_closed
    gate.close("more than 90% is used")
    assert "sync" in gate.why_closed
