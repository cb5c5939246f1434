"""Settings of broker.conf as frozen dataclasses, with Apache's names and defaults.

May import of `broker`: nothing.
"""
