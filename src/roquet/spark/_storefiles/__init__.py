"""Reads the files of a store without a broker.

May import of `spark`: _arrow, _options, _worker.
"""
