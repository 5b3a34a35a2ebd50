"""What the experts of a plan send, wait for and compute, layer by layer, as answers say it."""
