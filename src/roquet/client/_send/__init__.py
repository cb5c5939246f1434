"""Sending: encoded messages, batches, choice of a queue, retries.

May import of `client`: _net, received, send_result.
"""
