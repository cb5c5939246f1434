"""What a server writes to its log."""

from __future__ import annotations

import logging
import sys

from roquet.cli.log_lines import OneLine


def test_a_log_line_stays_one_line_whatever_peers_call_themselves() -> None:
    """Names of groups, clients and brokers come from peers: a newline would let them write lines of
    their own.
    """
    record = logging.LogRecord(
        "x",
        logging.WARNING,
        "x.py",
        1,
        "group %s joined",
        ("a\n\x1b[2J\u202eb\u2028\ud800é",),
        None,
    )

    line = OneLine("%(levelname)s %(name)s: %(message)s").format(record)

    assert line == r"WARNING x: group a\n\x1b[2J\u202eb\u2028\ud800é joined"


def test_where_an_error_was_raised_keeps_its_lines() -> None:
    try:
        raise ValueError("a")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "x.py", 1, "failed", (), sys.exc_info())

    assert OneLine("%(message)s").format(record).splitlines()[:2] == [
        "failed",
        "Traceback (most recent call last):",
    ]
