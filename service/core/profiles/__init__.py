"""Profiles: what each layer was measured to cost, at which shape."""
