"""Failing writes of a file are logged when they begin and when they end."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

import pytest

from roquet.common.write_log import WriteLog


def test_only_the_first_failure_and_the_first_success_after_it_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    writes = WriteLog(logging.getLogger(__name__), Path("file"))
    for error in (None, OSError("full"), ValueError("odd"), None, None, OSError("again")):
        with suppress(OSError, ValueError), writes.watching():
            if error is not None:
                raise error
        assert writes.is_failing == (error is not None)

    text = "file not written, it stays as it was and is tried again: path=file error="
    assert [(each.levelname, each.message) for each in caplog.records] == [
        ("ERROR", f"{text}full"),
        ("WARNING", "file written again: path=file"),
        ("ERROR", f"{text}again"),
    ]


def test_the_error_is_passed_on() -> None:
    writes = WriteLog(logging.getLogger(__name__), Path("file"))

    with pytest.raises(OSError, match="full"), writes.watching():
        raise OSError("full")


def test_an_error_of_another_kind_is_no_failed_write(caplog: pytest.LogCaptureFixture) -> None:
    writes = WriteLog(logging.getLogger(__name__), Path("file"))

    with pytest.raises(KeyError), writes.watching():
        raise KeyError

    assert (writes.is_failing, caplog.records) == (False, [])
