"""A store directory from the outside: checked, listed, printed, and its queues and index made anew."""
