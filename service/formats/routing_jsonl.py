"""The experts of tokens as JSON lines, as engines log them: an object on each line.

One with `topk_ids` is a token, with `layer`, `step`, `source`, `topk_weights` and `padded` as far
as they are known; one without says what holds for all (`num_experts`, `top_k`, `model` or
`model_id`, `dataset`).
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from service.formats.documents.fields import MAX_STAGES, Text
from service.formats.documents.moe import MAX_EXPERTS
from service.formats.documents.routing import MAX_NUMBER, MAX_RECORDS
from service.formats.pasted_text import Findings, lines_of
from service.formats.routing_reading import RoutingReading, StatedRouting
from service.formats.routing_tokens import TokenLine, line_of_row, token_records

__all__ = ["looks_like_routing_jsonl", "read_routing_jsonl"]

_Number = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
_Experts = Annotated[int, Meta(ge=1, le=MAX_EXPERTS)]
_Choices = Annotated[
    list[Annotated[int, Meta(ge=-1, lt=MAX_EXPERTS)]], Meta(min_length=1, max_length=MAX_EXPERTS)
]
_Weights = Annotated[
    list[Annotated[float, Meta(ge=-1e9, le=1e9)]], Meta(min_length=1, max_length=MAX_EXPERTS)
]


class _Line(Struct, frozen=True):
    """What a line may say; other fields of it are read over."""

    topk_ids: _Choices | None = None
    topk_weights: _Weights | None = None
    padded: bool = False
    layer: _Number | None = None
    step: _Number | None = None
    source: Annotated[int, Meta(ge=0, lt=MAX_STAGES)] | None = None
    num_experts: _Experts | None = None
    experts: _Experts | None = None
    top_k: _Experts | None = None
    model: Text | None = None
    model_id: Text | None = None
    dataset: Text | None = None


def looks_like_routing_jsonl(content: bytes) -> bool:
    """Whether its first two lines are an object each, and tokens are among the first ones."""
    head = content[:1_048_576].removeprefix(b"\xef\xbb\xbf")
    lines = [line.strip() for line in head.splitlines() if line.strip()]
    whole = [line[:1] == b"{" and line[-1:] == b"}" for line in lines[:2]]
    return len(whole) == 2 and all(whole) and b'"topk_ids"' in head


def read_routing_jsonl(content: bytes, stated: StatedRouting) -> RoutingReading:  # noqa: ARG001
    """Read a log of tokens.

    Raises `InvalidInput` with every fault, each with its line (counted from 1) as path
    `("line", n)`.
    """
    findings = Findings()
    tokens: list[TokenLine] = []
    heads: list[tuple[int, _Line]] = []
    decoder = msgspec.json.Decoder(_Line)
    for line, text in lines_of(content, findings):
        if not text.strip():
            continue
        try:
            said = decoder.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            findings.refuse(line, f"is no record of a token: {error}"[:300])
            continue
        if said.topk_ids is None:
            heads.append((line, said))
            continue
        if not tokens:
            _leave_out(line, text, findings)
        if said.layer is None:
            findings.assume("lines without layer are taken to be of layer 0")
        weights = said.topk_weights
        layer = 0 if said.layer is None else said.layer
        tokens.append(
            TokenLine(line, layer, said.step, said.source, said.topk_ids, weights, said.padded)
        )
    if not tokens and not findings.faulty:
        findings.refuse(None, "the file has no line with topk_ids")
    if len({(token.layer, token.step) for token in tokens}) > MAX_RECORDS:
        findings.refuse(None, f"at most {MAX_RECORDS} layers and steps make a routing")
    experts = _of_heads(heads, ("num_experts", "experts"), findings)
    top_k = _of_heads(heads, ("top_k",), findings)
    findings.raise_faults()
    records, lines = token_records(tokens)
    named = [said.model or said.model_id for _, said in heads]
    return RoutingReading(
        records=records,
        lines_of=lambda asked: [line_of_row(lines[place], inside) for place, inside in asked],
        experts=experts,
        top_k=top_k,
        model=next((name for name in named if name), None),
        dataset=next((said.dataset for _, said in heads if said.dataset), None),
        assumptions=tuple(findings.assumptions),
        left_out=findings.left_out(),
    )


def _leave_out(line: int, text: str, findings: Findings) -> None:
    """Tell what lines of tokens hold beside, by the first of them."""
    unknown = [name for name in msgspec.json.decode(text) if name not in _Line.__struct_fields__]
    for name in unknown[:20]:
        findings.leave_out(line, f"{name[:60]}, here and further on: says nothing of experts")


def _of_heads(
    heads: list[tuple[int, _Line]], names: tuple[str, ...], findings: Findings
) -> int | None:
    """What lines that are no tokens say under one of the names, which is one number."""
    found: int | None = None
    for line, said in heads:
        for name in names:
            value = getattr(said, name)
            if value is not None and found not in (None, value):
                findings.refuse(line, f"gives {name} {value}, where a line before gives {found}")
            found = value if found is None else found
    return found
