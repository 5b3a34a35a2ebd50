"""The reduction of gradients: what it moves, how long that takes alone, and when it is done."""
