"""PURE: bytes <-> values of RocketMQ's remoting protocol. No sockets, no clocks, no files."""
