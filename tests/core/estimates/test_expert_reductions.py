"""Experts have replicas of their own: which ranks reduce them, and how long that takes, by hand."""

from dataclasses import replace

import pytest

from service.core.estimates.reduction.parts import PartKind
from service.core.estimates.reduction.sharing import Span
from tests.core.estimates.reducing_plans import SECOND, estimated, plan_of

Groups = tuple[tuple[int, ...], ...]


def test_experts_share_the_links_with_dense_weights() -> None:
    """Four replicas of one stage, a host each, in two of which all experts are.

    A rank has 8 * 10**9 dense weights and half of 8 * 10**9 in experts, of two bytes each. A ring
    of four ranks sends 2 * 3/4 of 16 GB, one of two ranks 2 * 1/2 of 8 GB. Both begin after two
    microbatches of 3 s. Of the gradients of either as many bytes are reduced a second where they
    share a NIC of 8 GB/s: 3.2 GB/s, which take 3/2 and 1 times that of it. So experts are done
    2.5 s later, and the other 8 GB of dense gradients, which are 12 GB to send, another 1.5 s.
    """
    plan = plan_of([16 * 10**9], data=4)
    stages = tuple(replace(one, expert_parameter_count=8 * 10**9) for one in plan.stages or ())
    plan = replace(plan, stages=stages, degrees=replace(plan.degrees, expert=2))
    found = estimated(plan, latency=False)
    dense, experts = found.iteration_parts.reductions
    assert [one.planned.part.held.kind for one in (dense, experts)] == list(PartKind)
    assert [one.planned.part.held.elements for one in (dense, experts)] == [8 * 10**9, 4 * 10**9]
    assert dense.planned.part.groups == ((0, 1, 2, 3),)
    assert experts.planned.part.groups == ((0, 2), (1, 3))
    assert experts.span == Span(6 * SECOND, 8 * SECOND + SECOND // 2)
    assert dense.span == Span(6 * SECOND, 10 * SECOND)
    assert found.iteration == 10 * SECOND


@pytest.mark.parametrize(
    ("expert", "expert_tensor", "groups"),
    [
        (1, 1, ((0, 1, 4, 5, 8, 9, 12, 13),)),
        (2, 1, ((0, 4, 8, 12), (1, 5, 9, 13))),
        (4, 1, ((0, 8), (1, 9), (4, 12), (5, 13))),
        (2, 2, ((0, 8), (1, 9), (4, 12), (5, 13))),
        (4, 2, None),
    ],
)
def test_ranks_of_the_same_experts(expert: int, expert_tensor: int, groups: Groups | None) -> None:
    """The first of two stages has the ranks 0, 1, 4, 5, 8, 9, 12, 13: tensor first, then data.

    Each expert x expert_tensor of them in a row hold all experts once; eight ranks that hold each
    its own have nothing to reduce. Dense weights are reduced among ranks of equal tensor rank.
    """
    plan = plan_of([16, 0], data=4, tensor=2)
    first, last = plan.stages or ()
    degrees = replace(plan.degrees, expert=expert, expert_tensor=expert_tensor)
    stages = replace(first, expert_parameter_count=8), last
    found = estimated(replace(plan, stages=stages, degrees=degrees))
    parts = {
        one.planned.part.held.kind: one.planned.part for one in found.iteration_parts.reductions
    }
    assert parts.pop(PartKind.DENSE).groups == ((0, 4, 8, 12), (1, 5, 9, 13))
    assert {kind: part.groups for kind, part in parts.items()} == (
        {} if groups is None else {PartKind.EXPERT: groups}
    )
