"""What is taken for granted of the profile and the topology that a plan names."""

from collections.abc import Sequence
from re import findall

from service.core.errors import some_of
from service.core.plans.plan import Placed, Plan, Statement
from service.core.profiles.profile import Profile
from service.core.topology.cluster import Cluster

__all__ = ["documents_assumed"]


def documents_assumed(
    plan: Plan, cluster: Cluster | None, profile: Profile | None, placement: tuple[Placed, ...]
) -> tuple[Statement, ...]:
    """What was taken for granted of the documents that a plan names."""
    said: list[Statement] = []
    if profile is not None:
        said.append(
            _profile_says(
                plan.profile or "", profile.device, profile.precision, profile.description
            )
        )
    if cluster is None:
        return tuple(said)
    if profile is not None and profile.device is not None:
        products = dict.fromkeys(
            cluster.vertices[placed.device].product
            for placed in placement
            if placed.device is not None
        )
        others = [
            product
            for product in products
            if product is not None and not _may_be_one(profile.device, product)
        ]
        if others:
            said.append(_device_differs(profile.device, others))
    if plan.placement.devices is None:
        order = [dimension.value for dimension in plan.placement.order]
        said.append(_default_devices(len(placement), len(cluster.devices), order))
    return tuple(said)


def _may_be_one(device: str, product: str) -> bool:
    """Whether all words of one name are in the other: H100-SXM5-80GB, NVIDIA H100 SXM5 80GB."""
    one, other = (set(findall(r"[a-z0-9]+", name.lower())) for name in (device, product))
    return one <= other or other <= one


def _default_devices(ranks: int, devices: int, order: Sequence[str]) -> Statement:
    """Assumption: which devices the ranks stand on where the plan names none."""
    stand = "its rank stands" if ranks == 1 else f"its {ranks} ranks stand"
    return Statement(
        "default_devices",
        f"the plan names no devices: {stand} on the first {ranks} of the topology's {devices}, "
        f"in its order, ranks counted by {', '.join(order)} (innermost first)",
    )


def _device_differs(measured_on: str, products: Sequence[str]) -> Statement:
    """Assumption: times of one kind of device stand in for those of another."""
    return Statement(
        "device_differs",
        f"the profile is of {measured_on}, the ranks stand on {some_of(products)}: its times and "
        "sizes are taken as they are",
    )


def _profile_says(name: str, device: str | None, precision: str | None, text: str) -> Statement:
    """Assumption: stage costs are what a profile says, and what it says of itself."""
    of = "a device that it does not name" if device is None else device
    how = "" if precision is None else f" with {precision}"
    itself = f"it says of itself: {text}" if text else "it does not say how it was measured"
    return Statement("profile", f"stage costs are those of profile {name}, of {of}{how}; {itself}")
