"""The profile document: every field arrives, absent ones stay unknown."""

import json
from itertools import product

import msgspec
import pytest

from service.core.errors import FaultCode
from service.core.profiles.profile import Measurement, Point, Recompute
from service.formats.documents.profile import ProfileDocument, to_core
from tests.core.refusals import refusals

FULL = {
    "layer": "block.*",
    "microbatch_size": 2,
    "sequence_length": 4096,
    "tensor_parallel": 2,
    "recompute": "full",
    "forward_seconds": 0.001,
    "backward_input_seconds": 0.002,
    "backward_weight_seconds": 0.003,
    "recompute_seconds": 0.004,
    "tensor_parallel_communication_seconds": 0.005,
    "saved_activation_bytes": 6,
    "workspace_bytes": 7,
    "samples": 8,
    "relative_deviation": 0.09,
}


def read(*measurements: object, **fields: object) -> ProfileDocument:
    document = {"measurements": measurements, **fields}
    return msgspec.json.decode(json.dumps(document), type=ProfileDocument)


def test_everything_arrives() -> None:
    plain = {"layer": "head", "microbatch_size": 1, "forward_seconds": 1, "backward_seconds": 2}
    profile = to_core(read(FULL, plain, device="H100", precision="bf16", description="measured"))
    assert (profile.device, profile.precision) == ("H100", "bf16")
    assert profile.measurements == (
        Measurement(
            layer="block.*",
            point=Point(2, 4096, 2, Recompute.FULL),
            forward_seconds=0.001,
            backward_input_seconds=0.002,
            backward_weight_seconds=0.003,
            recompute_seconds=0.004,
            tensor_parallel_communication_seconds=0.005,
            saved_activation_bytes=6,
            workspace_bytes=7,
            samples=8,
            relative_deviation=0.09,
        ),
        Measurement("head", Point(1), 1.0, backward_seconds=2.0),
    )


def test_communication_arrives_pass_by_pass() -> None:
    stated = {
        f"tensor_parallel_{name}_{part}_seconds": number / 1000
        for number, (name, part) in enumerate(
            product(("forward", "backward", "recompute"), ("exposed", "communication")), start=1
        )
    }
    document = {name: value for name, value in FULL.items() if name not in stated}
    del document["tensor_parallel_communication_seconds"]
    (measurement,) = to_core(read({**document, **stated})).measurements
    assert {name: getattr(measurement, name) for name in stated} == stated


def test_what_is_absent_is_unknown() -> None:
    profile = to_core(read({"layer": "a", "microbatch_size": 1, "forward_seconds": 1}))
    assert profile.device is None
    cost = profile.lookup("a", 1)
    assert cost.backward_picoseconds is None
    assert cost.saved_activation_bytes is None


def test_faults_point_into_the_document() -> None:
    document = read({**FULL, "recompute": "none"}, FULL, FULL)
    assert refusals(lambda: to_core(document)) == [
        (FaultCode.INCONSISTENT, ("measurements", 0, "recompute_seconds")),
        (FaultCode.DUPLICATE_NAME, ("measurements", 2)),
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layer", "a[0]"),
        ("layer", "a\n"),
        ("microbatch_size", 0),
        ("microbatch_size", 2**53),
        ("forward_seconds", -0.1),
        ("forward_seconds", 1e6),
        ("backward_seconds", "1"),
        ("saved_activation_bytes", 1.0),
        ("samples", 0),
        ("recompute", "some"),
        ("tensor_parallel", None),
        ("waiting_seconds", 1),
    ],
)
def test_what_the_schema_refuses(field: str, value: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        read({**FULL, field: value})


def test_a_profile_has_a_measurement() -> None:
    with pytest.raises(msgspec.ValidationError):
        read(device="H100")
