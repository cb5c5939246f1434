"""PURE: RocketMQ's remoting protocol and record format. No sockets, no clocks, no files.

May import: nothing.
"""
