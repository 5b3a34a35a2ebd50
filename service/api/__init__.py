"""Thin controllers, one file per noun: parse, call one use case, render."""
