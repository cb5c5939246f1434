"""Consuming: rebalance, pulls, process queues, offsets, queue locks.

May import of `client`: _net, _send, hook, metrics, rebalance_listener, received, selector.
"""
