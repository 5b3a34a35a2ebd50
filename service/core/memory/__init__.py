"""Memory of a plan: what is alive, where and when."""
