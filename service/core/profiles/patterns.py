"""Patterns that stand for several layers by name."""

from fnmatch import translate
from re import Pattern
from re import compile as compile_expression

__all__ = ["MAX_PATTERNS", "is_pattern", "name_expression"]

# Distinct layer patterns of one document: each is tried on each layer of a model.
MAX_PATTERNS = 64

_WILDCARDS = frozenset("*?")


def is_pattern(name: str) -> bool:
    """Whether a name may stand for several layers."""
    return bool(_WILDCARDS & set(name))


def name_expression(pattern: str) -> Pattern[str]:
    """`*` is any run of characters, `?` any one; a bracket stands for itself."""
    return compile_expression(translate(pattern.replace("[", "[[]")))
