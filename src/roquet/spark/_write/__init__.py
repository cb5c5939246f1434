"""The sink: rows become messages.

May import of `spark`: _arrow, _options, _runtime.
"""
