"""JSON merge patch (RFC 7396): what-if questions as the difference from a document."""

from typing import Any

__all__ = ["merge_patch"]


def merge_patch(target: Any, patch: Any) -> Any:
    """`target` with `patch` applied; neither is changed.

    Objects merge member by member, a null removes its member, anything else replaces what stands
    there, lists included. Depth is bounded by that of the patch.
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged
