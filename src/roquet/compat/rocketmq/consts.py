"""The names of `rocketmq.consts`."""

from __future__ import annotations

from enum import Enum

from roquet.protocol.records import message as m

__all__ = ["MessageProperty"]


class MessageProperty(Enum):
    """Names of properties that clients and brokers add to messages."""

    TRACE_SWITCH = "TRACE_ON"
    MSG_REGION = "MSG_REGION"
    KEYS = m.KEYS
    TAGS = m.TAGS
    WAIT_STORE_MSG_OK = m.WAIT
    DELAY_TIME_LEVEL = m.DELAY
    RETRY_TOPIC = m.RETRY_TOPIC
    REAL_TOPIC = m.REAL_TOPIC
    REAL_QUEUE_ID = m.REAL_QID
    TRANSACTION_PREPARED = m.TRAN_MSG
    PRODUCER_GROUP = m.PRODUCER_GROUP
    MIN_OFFSET = m.MIN_OFFSET
    MAX_OFFSET = m.MAX_OFFSET
    BUYER_ID = "BUYER_ID"
    ORIGIN_MESSAGE_ID = m.ORIGIN_MESSAGE_ID
    TRANSFER_FLAG = "TRANSFER_FLAG"
    CORRECTION_FLAG = "CORRECTION_FLAG"
    MQ2_FLAG = "MQ2_FLAG"
    RECONSUME_TIME = m.RECONSUME_TIME
    UNIQ_CLIENT_MESSAGE_ID_KEYIDX = m.UNIQ_KEY
    MAX_RECONSUME_TIMES = m.MAX_RECONSUME_TIMES
    CONSUME_START_TIMESTAMP = "CONSUME_START_TIME"
