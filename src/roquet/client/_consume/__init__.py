"""Consuming: rebalance, pulls, process queues, offsets, queue locks.

May import of `client`: _net, _send, hook, rebalance_listener, received, selector.
"""
