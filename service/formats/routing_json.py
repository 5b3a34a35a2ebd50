"""Expert loads as JSON: an object with `layers`, each with `counts`, a `matrix` or `topk_ids`.

Beside them stand `num_experts` (or `experts`), `top_k`, `tokens`, `iteration` (or `step`), `model`
and `dataset`; a file of one layer may have its fields without `layers`. `top_k` null says that the
counts are loads in a unit that is no number of tokens.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from service.core.errors import Path
from service.formats.documents.fields import MAX_STAGES
from service.formats.documents.moe import MAX_EXPERTS
from service.formats.documents.routing import (
    MAX_COUNT,
    MAX_LISTED_TOKENS,
    MAX_NUMBER,
    MAX_RECORDS,
)
from service.formats.pasted_json import JsonFile, read_json
from service.formats.pasted_text import shown
from service.formats.routing_reading import ReadRecord, RoutingReading, StatedRouting

__all__ = ["looks_like_routing_json", "read_routing_json"]

_FORMS = ("counts", "matrix", "topk_ids")
_OF_LAYER = (
    "layer",
    "step",
    *_FORMS,
    "topk_weights",
    "tokens",
    "tokens_by_source",
    "padded",
    "padded_tokens",
)
_EXPERTS, _STEPS = ("num_experts", "experts"), ("step", "iteration")
_KNOWN = (
    *_EXPERTS,
    *_STEPS,
    "top_k",
    "tokens",
    "replicated",
    "model",
    "dataset",
    "layers",
    "source_ranks",
    "assignments_per_source_rank",
)
_MAX_TEXT = 2000
_MAX_WEIGHT = 1e9  # of a router, which a softmax keeps below 1


def looks_like_routing_json(content: bytes) -> bool:
    """Whether it is a JSON object that names one of the three ways in which loads are given."""
    head = content.lstrip(b"\xef\xbb\xbf \t\r\n")
    return head[:1] == b"{" and any(b'"' + form.encode() + b'"' in head for form in _FORMS)


def read_routing_json(content: bytes, stated: StatedRouting) -> RoutingReading:
    """Read a file of expert loads.

    Raises `InvalidInput` with every fault, each with its line (counted from 1) as path
    `("line", n)`.
    """
    file = read_json(content)
    values = file.mapping((), file.root)
    if values is None:
        raise file.refusal()
    own_layer = not isinstance(values.get("layers"), list)
    _leave_out(file, (), values, (*_KNOWN, *_OF_LAYER) if own_layer else _KNOWN)
    loads = "top_k" in values and values["top_k"] is None
    top_k = _optional(file, values, ("top_k",), least=1, most=MAX_EXPERTS)
    each = _optional(file, values, ("assignments_per_source_rank",), most=MAX_COUNT)
    by_source = _tokens_of_each(file, each, top_k or stated.top_k)
    step = _optional(file, values, _STEPS, most=MAX_NUMBER)
    records, places = [], []
    for path, fields in _layers(file, values, own_layer=own_layer):
        record = _record(file, path, fields, step, by_source)
        if record is not None:
            records.append(record)
            places.append(path)
    experts = _optional(file, values, _EXPERTS, least=1, most=MAX_EXPERTS)
    tokens = None if own_layer else _optional(file, values, ("tokens",), most=MAX_COUNT)
    replicated = _optional(file, values, ("replicated",), least=1, most=MAX_STAGES)
    model, dataset = _text(file, values, "model"), _text(file, values, "dataset")
    if not records and file.sound:
        file.refuse((), f"holds no layer with {', '.join(_FORMS)}")
    if not file.sound:
        raise file.refusal()
    return RoutingReading(
        records=records,
        lines_of=lambda asked: file.lines([(*places[place], *inside) for place, inside in asked]),
        experts=experts,
        top_k=top_k,
        loads=loads,
        tokens=tokens,
        replicated=replicated,
        model=model,
        dataset=dataset,
        left_out=file.left_out(),
    )


def _layers(
    file: JsonFile, values: Mapping[str, Any], *, own_layer: bool
) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The layers with their places; a file of one layer is that layer."""
    if own_layer:
        if "layers" in values:
            file.refuse(("layers",), "is a list of layers")
        elif any(form in values for form in _FORMS):
            yield (), values
        return
    if len(values["layers"]) > MAX_RECORDS:
        detail = f"holds {len(values['layers'])} layers; at most {MAX_RECORDS} make a routing"
        file.refuse(("layers",), detail)
        return
    for place, entry in enumerate(values["layers"]):
        if file.enough:
            return
        fields = file.mapping(("layers", place), entry)
        if fields is not None:
            _leave_out(file, ("layers", place), fields, _OF_LAYER)
            yield ("layers", place), fields


def _record(
    file: JsonFile,
    path: Path,
    fields: Mapping[str, Any],
    step: int | None,
    by_source: int | None,
) -> ReadRecord | None:
    given = [form for form in _FORMS if form in fields]
    if len(given) != 1:
        has = "has none" if not given else f"has {' and '.join(given)}"
        file.refuse(path, f"{has} of {', '.join(_FORMS)}, of which a layer has one")
        return None
    form = given[0]
    wide = (-1, MAX_EXPERTS - 1) if form == "topk_ids" else (0, MAX_COUNT)
    if form == "counts":
        row = _wholes(file, (*path, form), fields[form], *wide, most_entries=MAX_EXPERTS)
        rows: Sequence[Sequence[int]] | None = None if row is None else [row]
    else:
        most_rows = MAX_LISTED_TOKENS if form == "topk_ids" else MAX_STAGES
        rows = _rows(file, (*path, form), fields[form], wide, most_rows)
    layer = 0
    if "layer" in fields:
        layer = file.whole((*path, "layer"), fields["layer"], most=MAX_NUMBER) or 0
    elif path:
        file.refuse(path, "has no 'layer', its number in the model")
    own_step = _optional(file, fields, ("step",), path, most=MAX_NUMBER)
    tokens = _optional(file, fields, ("tokens",), path, most=MAX_COUNT)
    padded_tokens = _optional(file, fields, ("padded_tokens",), path, most=MAX_COUNT)
    tokens_by_source = None
    if "tokens_by_source" in fields:
        place = (*path, "tokens_by_source")
        found = fields["tokens_by_source"]
        tokens_by_source = _wholes(file, place, found, 0, MAX_COUNT, most_entries=MAX_STAGES)
    elif by_source is not None and form == "matrix" and rows is not None:
        tokens_by_source = [by_source] * len(rows)
    padded = _marks(file, (*path, "padded"), fields["padded"]) if "padded" in fields else None
    weights = None
    if "topk_weights" in fields and rows is not None:
        weights = _weights(file, (*path, "topk_weights"), fields["topk_weights"], rows)
    if rows is None:
        return None
    return ReadRecord(
        layer=layer,
        step=step if own_step is None else own_step,
        form=form,
        rows=rows,
        tokens=tokens,
        tokens_by_source=tokens_by_source,
        padded=padded,
        padded_tokens=padded_tokens,
        weights=weights,
    )


def _leave_out(file: JsonFile, path: Path, fields: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in fields:
        if name not in known:
            file.leave_out((*path, name), "says nothing of which experts tokens asked for")


def _optional(
    file: JsonFile,
    fields: Mapping[str, Any],
    names: Sequence[str],
    path: Path = (),
    *,
    least: int = 0,
    most: int,
) -> int | None:
    """A whole number under the first of the names that is there; null is nothing."""
    for name in names:
        if fields.get(name) is not None:
            return file.whole((*path, name), fields[name], least=least, most=most)
    return None


def _text(file: JsonFile, values: Mapping[str, Any], name: str) -> str | None:
    value = values.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or "\0" in value or len(value) > _MAX_TEXT:
        file.refuse((name,), f"is a text of up to {_MAX_TEXT} characters; got {shown(str(value))}")
        return None
    return value


def _tokens_of_each(file: JsonFile, assignments: int | None, top_k: int | None) -> int | None:
    """Tokens of each source, where the file says its assignments."""
    if assignments is None or top_k is None:
        return None
    if assignments % top_k:
        detail = f"is {assignments}, no multiple of the {top_k} experts of each token"
        file.refuse(("assignments_per_source_rank",), detail)
    return assignments // top_k


def _rows(
    file: JsonFile, path: Path, value: object, wide: tuple[int, int], most_rows: int
) -> list[list[int]] | None:
    if not isinstance(value, list) or len(value) > most_rows:
        file.refuse(path, f"is a list of at most {most_rows} lists of whole numbers")
        return None
    rows: list[list[int]] = []
    for place, entry in enumerate(value):
        if file.enough:
            return None
        row = _wholes(file, (*path, place), entry, *wide, most_entries=MAX_EXPERTS)
        if row is not None:
            rows.append(row)
    return rows if len(rows) == len(value) else None


def _wholes(
    file: JsonFile, path: Path, value: object, least: int, most: int, *, most_entries: int
) -> list[int] | None:
    """A list of whole numbers, quickly where it is one."""
    if not isinstance(value, list) or not 1 <= len(value) <= most_entries:
        file.refuse(path, f"is a list of 1 to {most_entries} whole numbers")
        return None
    if all(type(number) is int for number in value) and least <= min(value) <= max(value) <= most:
        return value
    found = [
        file.whole((*path, place), number, least=least, most=most)
        for place, number in enumerate(value)
        if not file.enough
    ]
    sound = [number for number in found if number is not None]
    return sound if len(sound) == len(value) else None


def _marks(file: JsonFile, path: Path, value: object) -> list[bool] | None:
    if isinstance(value, list) and all(type(mark) is bool for mark in value):
        return value
    file.refuse(path, "is a list with true for each token that is padding, and false for others")
    return None


def _weights(
    file: JsonFile, path: Path, value: object, rows: Sequence[Sequence[int]]
) -> list[list[float]] | None:
    """Those of each choice, of the shape of `rows`."""
    if (
        isinstance(value, list)
        and len(value) == len(rows)
        and all(
            isinstance(row, list)
            and len(row) == len(choices)
            and all(type(weight) in (int, float) and abs(weight) <= _MAX_WEIGHT for weight in row)
            for row, choices in zip(value, rows, strict=True)
        )
    ):
        return value
    file.refuse(path, "has a number for each entry of topk_ids")
    return None
