"""Java for Spark, and the event loop in a thread of a Python worker.

May import of `spark`: nothing.
"""
