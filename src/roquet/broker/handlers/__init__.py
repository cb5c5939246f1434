"""Request in, answer out: a module per conversation."""
