"""Small clusters, models and plans that the tests of plans share."""

from collections.abc import Sequence

from service.core.models.dtypes import DType
from service.core.models.graph import Layer, Model, Parameter, RecordedSize, Tensor, build_model
from service.core.plans.contract import Contract
from service.core.plans.plan import (
    Degrees,
    GivenStage,
    Partition,
    Placement,
    Plan,
    Schedule,
    Workload,
)
from service.core.profiles.profile import Measurement, Point, Profile, build_profile
from service.core.topology.cluster import Cluster, Link, LinkKind, RateOrigin, Vertex, VertexKind

FAST = 100e9
SLOW = 10e9


def cluster(
    hosts: int = 2,
    gpus: int = 2,
    *,
    latency_seconds: float | None = 2e-6,
    effective: float | None = 8e9,
    assumed: bool = False,
    joined: bool = True,
) -> Cluster:
    """Hosts with a 100 GB/s switch inside and one 10 GB/s NIC each to a leaf.

    A NIC hangs on its host's first switch, so that each path between hosts has a 10 GB/s
    bottleneck of `effective` bytes per second, and six links: GPU, switch, NIC, leaf and back.
    """
    vertices: list[Vertex] = []
    links: list[Link] = []

    def join(one: str, other: str, kind: LinkKind, rate: float, usable: float | None) -> None:
        for source, target in ((one, other), (other, one)):
            links.append(
                Link(
                    source,
                    target,
                    kind,
                    rate,
                    effective_bytes_per_second=usable,
                    latency_floor_seconds=1e-6,
                    latency_seconds=latency_seconds,
                    bandwidth_origin=RateOrigin.ASSUMED if assumed else RateOrigin.STATED,
                )
            )

    for number in range(hosts):
        host = f"host{number}"
        vertices.append(Vertex(f"{host}/switch", VertexKind.PCIE_SWITCH, host))
        vertices.append(Vertex(f"{host}/nic0", VertexKind.NIC, host))
        join(f"{host}/switch", f"{host}/nic0", LinkKind.PCIE, FAST, FAST)
        for gpu in range(gpus):
            vertices.append(Vertex(f"{host}/gpu{gpu}", VertexKind.GPU, host))
            join(f"{host}/gpu{gpu}", f"{host}/switch", LinkKind.PCIE, FAST, FAST)
    vertices.append(Vertex("leaf0", VertexKind.LEAF))
    if joined:
        for number in range(hosts):
            join(f"host{number}/nic0", "leaf0", LinkKind.NETWORK, SLOW, effective)
    return Cluster(
        {vertex.name: vertex for vertex in vertices},
        {(link.source, link.target): link for link in links},
    )


def chain(layers: int, *, tied: Sequence[int] = ()) -> Model:
    """Layers l0, l1, ...; l(i) hands 1000 + i bytes to l(i+1), recorded at microbatch size 2."""
    weight = Parameter("w", 1, DType.FP32, tied_group="tied")
    return build_model(
        [Layer(f"l{i}", "linear", (weight,) if i in tied else ()) for i in range(layers)],
        [
            Tensor(f"t{i}", f"l{i}", (f"l{i + 1}",), recorded=RecordedSize(1000 + i, 2))
            for i in range(layers - 1)
        ],
    )


def chain_profile(layers: int, *, saved: int | None = None) -> Profile:
    """Layer i takes (i + 1) ms forward and twice that backward, at microbatch size 2."""
    return build_profile(
        "gpu",
        None,
        [
            Measurement(
                f"l{i}",
                Point(2),
                (i + 1) * 1e-3,
                backward_seconds=(i + 1) * 2e-3,
                saved_activation_bytes=saved,
            )
            for i in range(layers)
        ],
    )


def given_plan(
    *stages: GivenStage,
    degrees: Degrees | None = None,
    kind: str = "1f1b",
    topology: str | None = None,
    placement: Placement | None = None,
    workload: Workload | None = None,
    recompute: str = "none",
    contract: Contract | None = None,
) -> Plan:
    """A plan with inline costs."""
    return Plan(
        degrees=degrees or Degrees(pipeline=len(stages)),
        workload=workload or Workload(microbatches=8),
        schedule=Schedule(kind),
        stages=stages,
        topology=topology,
        placement=placement or Placement(),
        recompute=recompute,
        contract=contract or Contract(),
    )


def profiled_plan(
    partition: Partition | None,
    *,
    degrees: Degrees,
    kind: str = "1f1b",
    workload: Workload | None = None,
    topology: str | None = None,
    placement: Placement | None = None,
    recompute: str = "none",
) -> Plan:
    """A plan priced by a profile, at microbatch size 2 unless said otherwise."""
    return Plan(
        degrees=degrees,
        workload=workload or Workload(microbatches=8, microbatch_size=2),
        schedule=Schedule(kind),
        model="chain@1",
        profile="chain-gpu@1",
        partition=partition,
        topology=topology,
        placement=placement or Placement(),
        recompute=recompute,
    )
