"""The API of rocketmq-client-python 2.0.0, in modules of its names.

    from roquet.compat.rocketmq.client import Message, Producer

docs/guide/coming-from.md says what differs.

May import of `compat`: nothing.
"""
