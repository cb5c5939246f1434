"""The sink: writes the rows of a DataFrame or stream as messages.

May import of `spark`: _arrow, _options, _worker.
"""
