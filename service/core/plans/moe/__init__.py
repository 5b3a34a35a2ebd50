"""The experts of a plan: who sends what to whom in each layer, and what that adds to each stage."""
