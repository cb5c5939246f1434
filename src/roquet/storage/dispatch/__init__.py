"""Dispatch: new records of the log become entries of queues and index.

May import of `storage`: index, log, queues.
"""
