"""What every package may use: settings, files replaced atomically, units, work in steps, rate-limited logs.

May import: nothing.
"""
