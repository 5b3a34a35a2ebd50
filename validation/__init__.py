"""Published values beside ours, each with its error and what it is held to."""
