"""FILES: an append-only log and all that is derived from it. No sockets, no tasks."""
