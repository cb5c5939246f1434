"""The index: messages by key and time.

May import of `storage`: files, log.
"""
