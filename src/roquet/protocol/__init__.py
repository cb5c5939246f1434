"""PURE: bytes and values of RocketMQ's remoting protocol and records. No sockets, no clocks, no files.

May import: nothing.
"""
