"""Reads topics in batches and streams: plans offsets, limits batches, pulls messages.

May import of `spark`: _arrow, _options, _worker.
"""
