"""Which tensors cross which boundary, against a slow count from the definition."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.amounts import largest
from service.core.errors import FaultCode
from service.core.models import cuts
from service.core.models.cuts import Cut, SkipRouting, cut_model
from service.core.models.graph import Layer, Model, RecordedSize, Tensor, build_model
from service.core.models.sizes import BatchShape
from tests.core.refusals import refusal_text, refusals

BATCH = BatchShape(1)


def random_model(random: Random, layers: int) -> Model:
    names = [f"l{position}" for position in range(layers)]
    tensors = []
    for number in range(random.randint(0, 3 * layers)):
        producer = random.randrange(layers)
        later = names[producer + 1 :]
        consumers = tuple(random.sample(later, random.randint(0, min(4, len(later)))))
        size = RecordedSize(random.randint(0, 1000), 1)
        outside = random.random() < 0.1
        tensors.append(
            Tensor(
                f"t{number}",
                None if outside else names[producer],
                consumers,
                recorded=size,
                requires_gradient=None if outside else random.random() < 0.8,
            )
        )
    return build_model([Layer(name, "x") for name in names], tensors)


def random_stages(random: Random, layers: int, stages: int) -> list[int]:
    starts = sorted(random.sample(range(1, layers), stages - 1))
    return [sum(position >= start for start in starts) for position in range(layers)]


def slow_cuts(
    model: Model, stage_of: list[int], routing: SkipRouting
) -> dict[tuple[int, int], list[tuple[str, int, int]]]:
    """For each pair of stages every tensor that passes between them, from the definition."""
    crossing: dict[tuple[int, int], list[tuple[str, int, int]]] = {}
    last = stage_of[-1]
    for source in range(last + 1):
        for target in range(source + 1, last + 1):
            found = []
            for tensor in model.tensors:
                if tensor.producer is None or tensor.recorded is None:
                    continue
                made = stage_of[model.positions[tensor.producer]]
                used = [stage_of[model.positions[name]] for name in tensor.consumers]
                if routing is SkipRouting.DIRECT:
                    passes = made == source and target in used
                else:
                    passes = (
                        target == source + 1
                        and made <= source
                        and any(stage > source for stage in used)
                    )
                if passes:
                    size = tensor.recorded.bytes
                    found.append((tensor.name, size, size if tensor.has_gradient else 0))
            if found or (routing is SkipRouting.RELAY and target == source + 1):
                crossing[source, target] = found
    return crossing


def as_table(found: tuple[Cut, ...]) -> dict[tuple[int, int], list[tuple[str, int, int]]]:
    return {
        (cut.source, cut.target): [
            (tensor.name, largest(tensor.forward_bytes), largest(tensor.backward_bytes))
            for tensor in cut.tensors
        ]
        for cut in found
    }


@given(seed=st.integers(0, 2**32), layers=st.integers(2, 12), data=st.data())
def test_cuts_are_those_of_the_definition(seed: int, layers: int, data: st.DataObject) -> None:
    random = Random(seed)
    model = random_model(random, layers)
    stage_of = random_stages(random, layers, data.draw(st.integers(1, layers)))
    for routing in SkipRouting:
        found = cut_model(model, stage_of, [BATCH], routing)
        assert as_table(found) == slow_cuts(model, stage_of, routing)


@given(seed=st.integers(0, 2**32), layers=st.integers(2, 12), data=st.data())
def test_relaying_a_tensor_moves_no_less_than_sending_it_once_to_its_last_consumer(
    seed: int, layers: int, data: st.DataObject
) -> None:
    random = Random(seed)
    model = random_model(random, layers)
    stage_of = random_stages(random, layers, data.draw(st.integers(1, layers)))
    moved: dict[SkipRouting, dict[str, int]] = {}
    for routing in SkipRouting:
        moved[routing] = {}
        for cut in cut_model(model, stage_of, [BATCH], routing):
            for tensor in cut.tensors:
                total = moved[routing].get(tensor.name, 0) + largest(tensor.forward_bytes)
                moved[routing][tensor.name] = total
    assert moved[SkipRouting.RELAY].keys() == moved[SkipRouting.DIRECT].keys()
    for name, direct in moved[SkipRouting.DIRECT].items():
        # Each consumer stage of `direct` costs one message; relaying passes through all of them.
        assert moved[SkipRouting.RELAY][name] >= direct


def residual() -> Model:
    """a -> b -> c -> d, and what `a` makes is added again at `d` and looked at by `c`."""
    return build_model(
        [Layer(name, "x") for name in "abcd"],
        [
            Tensor("skip", "a", ("b", "c", "d"), recorded=RecordedSize(100, 1)),
            Tensor("b.out", "b", ("c",), recorded=RecordedSize(10, 1)),
            Tensor("c.out", "c", ("d",), recorded=RecordedSize(1, 1), requires_gradient=False),
        ],
    )


def test_a_residual_is_relayed_through_the_stages_between() -> None:
    found = cut_model(residual(), [0, 1, 2, 3], [BATCH], SkipRouting.RELAY)
    assert [(cut.forward_bytes, cut.backward_bytes) for cut in found] == [
        (100, 100),
        (110, 110),
        (101, 100),
    ]
    assert [tensor.consumed_stages for cut in found for tensor in cut.tensors] == [
        (1, 2, 3),
        (2, 3),
        (2,),
        (3,),
        (3,),
    ]


def test_a_residual_goes_straight_once_to_each_consumer_stage() -> None:
    found = cut_model(residual(), [0, 1, 1, 2], [BATCH], SkipRouting.DIRECT)
    assert as_table(found) == {
        (0, 1): [("skip", 100, 100)],  # b and c are on one stage: charged once
        (0, 2): [("skip", 100, 100)],
        (1, 2): [("c.out", 1, 0)],
    }


def test_without_gradients_nothing_goes_back() -> None:
    found = cut_model(residual(), [0, 1, 2, 3], [BATCH], with_gradients=False)
    assert [cut.backward_bytes for cut in found] == [0, 0, 0]
    assert sum(largest(cut.forward_bytes) for cut in found) == 311


def test_one_stage_has_no_boundary() -> None:
    assert cut_model(residual(), [0, 0, 0, 0], [BATCH]) == ()


def test_unknown_sizes_are_told_together_and_only_for_what_crosses() -> None:
    model = residual()
    other = BatchShape(2)
    assert cut_model(model, [0, 0, 0, 0], [other]) == ()
    text = refusal_text(lambda: cut_model(model, [0, 1, 2, 3], [other]))
    assert "'skip'" in text
    assert "2 more tensors like it" in text
    assert refusals(lambda: cut_model(model, [0, 1, 2, 3], [other])) == [
        (FaultCode.INCONSISTENT, ("workload", "microbatch_size"))
    ]


def test_the_list_of_crossings_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "MAX_CROSSINGS", 7)
    # Relayed, `skip` is carried for 3, 2 and 1 stages; the two others for one each.
    assert refusals(lambda: cut_model(residual(), [0, 1, 2, 3], [BATCH])) == [
        (FaultCode.WORK_BUDGET, ("partition",))
    ]
    monkeypatch.setattr(cuts, "MAX_CROSSINGS", 8)
    assert len(cut_model(residual(), [0, 1, 2, 3], [BATCH])) == 3


def test_a_tensor_to_an_earlier_stage_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="earlier stage"):
        cut_model(residual(), [1, 0, 0, 1], [BATCH])
