"""Headers of transactions: codes 37, 39, 323.

See docs/protocol/transactions.md#ending-a-transaction, docs/protocol/transactions.md#check-back,
docs/protocol/transactions.md#giving-up and docs/protocol/transactions.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from roquet.common.java import Int32, Int64
from roquet.protocol.headers import Header

# commitOrRollback of END_TRANSACTION; the first two are the bits of a record's sysFlag as well
COMMIT: Final = 0x8
ROLLBACK: Final = 0xC
UNKNOWN: Final = 0


@dataclass(frozen=True, slots=True)
class EndTransactionHeader(Header):
    """Code 37. `tran_state_table_offset` is the half message's queue offset.

    `commit_log_offset` is its physical offset. Only 5.x clients send `topic`.
    """

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    from_transaction_check: bool = False
    msg_id: str | None = None
    transaction_id: str | None = None
    bname: str | None = None
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class CheckTransactionHeader(Header):
    """Code 39. `msg_id` and `transaction_id` are the message's UNIQ_KEY.

    Offsets as in `EndTransactionHeader`.
    """

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    bname: str | None = None


@dataclass(frozen=True, slots=True)
class ResumeCheckHeader(Header):
    """Code 323. `msg_id` is an offset message id."""

    msg_id: str
