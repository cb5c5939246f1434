"""Set-up of Spark's Python workers, and an event loop in a thread.

May import of `spark`: nothing.
"""
