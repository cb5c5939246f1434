"""Files of a store: directories, segments, mapped files, the lock, what follows a failed sync.

May import of `storage`: nothing.
"""
