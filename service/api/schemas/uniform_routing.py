"""Wire types of a plan beside the same with tokens that choose their experts evenly."""

from fractions import Fraction
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.core.estimates.uniform_routing import BesideUniform, RoutedNumbers
from service.core.units import PICOSECONDS_PER_SECOND, to_seconds
from service.formats.documents.fields import or_unset

__all__ = [
    "RoutedNumbersOut",
    "RoutingDifference",
    "UniformRouting",
    "peaks_beside_uniform",
    "uniform_routing_terms",
]

_Seconds = Annotated[float, Meta(ge=0)]
_Bytes = Annotated[int, Meta(ge=0)]


class RoutedNumbersOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The main numbers under one routing; what is not known, or not simulated, is absent."""

    iteration_seconds: Annotated[_Seconds | UnsetType, Meta(description="Prediction.")] = UNSET
    makespan_seconds: Annotated[
        _Seconds | UnsetType, Meta(description="Prediction: of the schedule alone.")
    ] = UNSET
    steady_seconds: Annotated[
        _Seconds | UnsetType,
        Meta(description="Prediction: what a microbatch adds in a long iteration."),
    ] = UNSET
    cadence_bound_seconds: Annotated[
        _Seconds | UnsetType, Meta(description="Lower bound of what a microbatch adds.")
    ] = UNSET
    slowest_stage: Annotated[int | UnsetType, Meta(description="That with the most work.")] = UNSET
    peak_activation_bytes: Annotated[
        _Bytes | UnsetType, Meta(description="Live activations of the fullest rank.")
    ] = UNSET
    peak_bytes: Annotated[
        _Bytes | UnsetType, Meta(description="All that the fullest rank holds.")
    ] = UNSET


class RoutingDifference(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """As the plan is routed, less with an even choice; of numbers that are known in both."""

    iteration_seconds: float | UnsetType = UNSET
    makespan_seconds: float | UnsetType = UNSET
    steady_seconds: float | UnsetType = UNSET
    cadence_bound_seconds: float | UnsetType = UNSET
    peak_activation_bytes: int | UnsetType = UNSET
    peak_bytes: int | UnsetType = UNSET


class UniformRouting(msgspec.Struct, kw_only=True, frozen=True):
    """What an even choice of experts would have said, which hides the one all wait for."""

    routed: Annotated[RoutedNumbersOut, Meta(description="As the plan is; stands elsewhere too.")]
    uniform: Annotated[RoutedNumbersOut, Meta(description="With tokens that choose evenly.")]
    difference: RoutingDifference


def uniform_routing_terms(found: BesideUniform) -> UniformRouting:
    """The wire form of both sets of numbers."""
    routed, uniform = found.routed, found.uniform
    return UniformRouting(
        routed=_numbers(routed),
        uniform=_numbers(uniform),
        difference=RoutingDifference(
            iteration_seconds=_seconds(found.iteration_difference),
            makespan_seconds=to_seconds(routed.makespan - uniform.makespan),
            steady_seconds=_seconds(found.steady_difference),
            cadence_bound_seconds=_seconds(routed.cadence_bound - uniform.cadence_bound),
            peak_activation_bytes=_less(
                routed.peak_activation_bytes, uniform.peak_activation_bytes
            ),
            peak_bytes=_less(routed.peak_bytes, uniform.peak_bytes),
        ),
    )


def peaks_beside_uniform(routed: int | None, uniform: int | None) -> UniformRouting:
    """The same of what follows from the order alone: live activations of the fullest rank."""
    return UniformRouting(
        routed=RoutedNumbersOut(peak_activation_bytes=or_unset(routed)),
        uniform=RoutedNumbersOut(peak_activation_bytes=or_unset(uniform)),
        difference=RoutingDifference(peak_activation_bytes=_less(routed, uniform)),
    )


def _numbers(numbers: RoutedNumbers) -> RoutedNumbersOut:
    return RoutedNumbersOut(
        iteration_seconds=_seconds(numbers.iteration),
        makespan_seconds=to_seconds(numbers.makespan),
        steady_seconds=_seconds(numbers.steady),
        cadence_bound_seconds=_seconds(numbers.cadence_bound),
        slowest_stage=numbers.slowest_stage,
        peak_activation_bytes=or_unset(numbers.peak_activation_bytes),
        peak_bytes=or_unset(numbers.peak_bytes),
    )


def _seconds(picoseconds: Fraction | None) -> float | UnsetType:
    return UNSET if picoseconds is None else float(picoseconds / PICOSECONDS_PER_SECOND)


def _less(one: int | None, other: int | None) -> int | UnsetType:
    return UNSET if one is None or other is None else one - other
