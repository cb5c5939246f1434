"""HA: the master's commit log, byte for byte, at its slaves (store-and-ha.md 5)."""
