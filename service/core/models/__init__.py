"""Models as graphs of layers: what each layer holds, and which tensors pass between layers."""
