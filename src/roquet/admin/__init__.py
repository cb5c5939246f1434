"""Typed operations on a running cluster, one module per subject.

Commands and other programs use them.

May import: client, protocol, transport.
"""
