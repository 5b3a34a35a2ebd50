"""Estimates: one resolved plan in, every term of its answer out."""
