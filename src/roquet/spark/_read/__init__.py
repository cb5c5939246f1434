"""Reading topics: batch and stream, bounds of queues, rate limits.

May import of `spark`: _arrow, _options, _runtime, _write.
"""
