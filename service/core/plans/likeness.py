"""Whether plans do the same work: their contracts, field by field.

What follows from a plan is derived here and never asked for: the batch and how it is made, the
lengths of its sequences, the model, the precision, when weights change, and from `moe` how tokens
are routed and what is dropped of them. The rest is what the plan
states (`service.core.plans.contract`). A field that one plan says and another does not may differ
for all anybody knows, so it counts as unlike; one that no plan says is told as unknown.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from service.core.errors import Path
from service.core.models.dtypes import DType
from service.core.models.graph import Model
from service.core.plans.contract import weight_update_of
from service.core.plans.moe.contract import dropped_fraction, router_policy
from service.core.plans.moe.inputs import MoeInputs
from service.core.plans.plan import ResolvedPlan
from service.core.plans.schedule import plan_family, plan_shape
from service.core.plans.statements import counted
from service.core.plans.training import Training

__all__ = [
    "ContractField",
    "ContractTerm",
    "ContractTermOrigin",
    "Likeness",
    "agree",
    "contract_terms",
    "likeness",
]

# Different sequence lengths that are written out; the rest is counted.
_MOST_LENGTHS = 5
# Two fractions of dropped tokens that are written alike are alike.
_DROPPED_DIGITS = 4


class ContractField(StrEnum):
    """What is compared, in the order in which it is told."""

    MODEL = "model"
    GLOBAL_BATCH_SIZE = "global_batch_size"
    GLOBAL_BATCH_CONSTRUCTION = "global_batch_construction"
    HELD_FIXED = "held_fixed"
    SEQUENCE_LENGTHS = "sequence_lengths"
    PRECISION = "precision"
    TRAINING_DTYPES = "training_dtypes"
    OPTIMIZER = "optimizer"
    WEIGHT_UPDATE = "weight_update"
    LOSS_SCALING = "loss_scaling"
    ROUTER_POLICY = "router_policy"
    ROUTING = "routing"
    OVERFLOW = "overflow"
    CAPACITY_FACTOR = "capacity_factor"
    CAPACITY_SCOPE = "capacity_scope"
    DROP_ORDER = "drop_order"
    DROPPED_FRACTION = "dropped_token_fraction"
    RANDOM_STATE = "random_state"


class ContractTermOrigin(StrEnum):
    """Where a term of a contract comes from."""

    DERIVED = "derived"
    STATED = "stated"


@dataclass(frozen=True, slots=True)
class ContractTerm:
    """One field of one plan: `key` is compared, `text` is read, `path` leads into the plan."""

    field: ContractField
    key: Hashable
    text: str
    origin: ContractTermOrigin
    path: Path


Terms = Mapping[ContractField, ContractTerm]


@dataclass(frozen=True, slots=True)
class Likeness:
    """How the contracts of several plans compare.

    `unlike` are the fields in which any plan differs from the first, or that only some of them say;
    `unknown` those that none says.
    """

    unlike: tuple[ContractField, ...]
    unknown: tuple[ContractField, ...]


def likeness(plans: Sequence[Terms]) -> Likeness:
    """Compare the terms of plans with those of the first."""
    unlike, unknown = [], []
    for name in ContractField:
        found = [terms.get(name) for terms in plans]
        if all(term is None for term in found):
            unknown.append(name)
        elif any(not agree(found[0], term) for term in found[1:]):
            unlike.append(name)
    return Likeness(tuple(unlike), tuple(unknown))


def agree(one: ContractTerm | None, other: ContractTerm | None) -> bool:
    """Whether two plans say the same of a term, or neither says anything."""
    if one is None or other is None:
        return one is other
    return one.key == other.key


def contract_terms(
    resolved: ResolvedPlan,
    *,
    model: Model | None = None,
    precision: str | None = None,
    routing_digest: str | None = None,
) -> dict[ContractField, ContractTerm]:
    """The terms of a plan's contract that are known.

    `model`, `precision` and `routing_digest` are those of the model, the profile and the routing
    that the plan names, if it does. Models are the same when their layers and tensors are, whatever
    they are called.
    """
    found = {
        term.field: term
        for term in (
            *_derived(resolved, model, precision),
            *_trained(resolved.plan.training, model),
            *_stated(resolved),
            *_of_experts(resolved, routing_digest),
        )
    }
    return {field: found[field] for field in ContractField if field in found}


def _derived(
    resolved: ResolvedPlan, model: Model | None, precision: str | None
) -> Iterator[ContractTerm]:
    def derived(field: ContractField, key: Hashable, text: str, *path: str) -> ContractTerm:
        return ContractTerm(field, key, text, ContractTermOrigin.DERIVED, path)

    plan = resolved.plan
    if model is not None:
        text = f"{plan.model}: {len(model.layers)} layers, {model.parameter_count} trained elements"
        yield derived(ContractField.MODEL, (model.layers, model.tensors), text, "costs", "model")
    size, count = resolved.microbatch_size, plan.workload.microbatches
    if resolved.global_batch_size is not None:
        whole = resolved.global_batch_size
        yield derived(ContractField.GLOBAL_BATCH_SIZE, whole, str(whole), "workload")
    made_of = [
        counted(count, "microbatch", "microbatches"),
        counted(plan.degrees.data, "replica", "replicas"),
    ]
    if size is not None:
        made_of.insert(0, counted(size, "sample", "samples"))
    yield derived(
        ContractField.GLOBAL_BATCH_CONSTRUCTION,
        (size, count, plan.degrees.data),
        " x ".join(made_of),
        "workload",
    )
    if resolved.held_fixed is not None:
        yield derived(
            ContractField.HELD_FIXED, resolved.held_fixed, resolved.held_fixed, "workload"
        )
    lengths = _sequence_lengths(resolved)
    if lengths is not None:
        yield derived(ContractField.SEQUENCE_LENGTHS, lengths, _written(lengths), "workload")
    if precision is not None:
        yield derived(ContractField.PRECISION, precision, precision, "costs", "profile")
    update = weight_update_of(plan_family(plan), plan_shape(plan))
    yield derived(ContractField.WEIGHT_UPDATE, update, update.value, "schedule", "kind")


def _trained(training: Training | None, model: Model | None) -> Iterator[ContractTerm]:
    """The optimizer, and the types of what it reads and writes where those of weights are known."""
    if training is None:
        return
    path = ("training",)
    layers = () if model is None else model.layers
    own: list[DType | None] = []
    own += sorted({weight.dtype for layer in layers for weight in layer.parameters})
    if own or training.weight_dtype is not None:
        texts = [_dtypes(training, dtype) for dtype in own or [None]]
        text = "; ".join(dict.fromkeys(texts))
        yield ContractTerm(
            ContractField.TRAINING_DTYPES, text, text, ContractTermOrigin.STATED, path
        )
    name = training.optimizer.value
    yield ContractTerm(
        ContractField.OPTIMIZER, name, name, ContractTermOrigin.STATED, (*path, "optimizer")
    )


def _dtypes(training: Training, own: DType | None) -> str:
    master, moments = training.master(own), training.moments(own)
    parts = [
        f"weights {training.weights(own).value}",
        f"gradients {training.gradients(own).value}",
        "no master copy" if master is None else f"master copy {master.value}",
    ]
    if moments:
        parts.append(f"moments {' and '.join(moment.value for moment in moments)}")
    return ", ".join(parts)


def _stated(resolved: ResolvedPlan) -> Iterator[ContractTerm]:
    contract = resolved.plan.contract
    for field, value in (
        (ContractField.LOSS_SCALING, contract.loss_scaling),
        (ContractField.ROUTER_POLICY, contract.router_policy),
        (ContractField.OVERFLOW, contract.overflow),
        (ContractField.CAPACITY_FACTOR, contract.capacity_factor),
        (ContractField.DROPPED_FRACTION, contract.dropped_token_fraction),
        (ContractField.RANDOM_STATE, contract.random_state),
    ):
        if value is not None:
            path = ("contract", field.value)
            yield ContractTerm(field, value, str(value), ContractTermOrigin.STATED, path)


def _of_experts(resolved: ResolvedPlan, digest: str | None) -> Iterator[ContractTerm]:
    """What `moe` says of the training; a contract that states it too agrees with it."""
    moe = resolved.moe
    if moe is None:
        return

    def derived(field: ContractField, key: Hashable, text: str, *path: str) -> ContractTerm:
        return ContractTerm(field, key, text, ContractTermOrigin.DERIVED, ("moe", *path))

    capacity = moe.inputs.settings.capacity
    if resolved.plan.contract.router_policy is None:
        policy = router_policy(moe)
        yield derived(ContractField.ROUTER_POLICY, policy, policy)
    yield _routing(moe.inputs, digest)
    yield derived(ContractField.OVERFLOW, capacity.overflow, capacity.overflow.value, "overflow")
    if capacity.factor is not None and capacity.scope is not None:
        scope, order, text = capacity.scope, capacity.order, str(capacity.factor)
        key: Hashable = capacity.factor
        if (capacity.minimum, capacity.alignment) != (0, 1):
            key = capacity.factor, capacity.minimum, capacity.alignment
            text += f", at least {capacity.minimum}, in multiples of {capacity.alignment}"
        yield derived(ContractField.CAPACITY_FACTOR, key, text, "capacity_factor")
        yield derived(ContractField.CAPACITY_SCOPE, scope, scope.value, "capacity_scope")
        yield derived(ContractField.DROP_ORDER, order, order.value, "drop_order")
    dropped = round(dropped_fraction(moe, resolved.sizes), _DROPPED_DIGITS)
    yield derived(ContractField.DROPPED_FRACTION, dropped, str(dropped))


def _routing(inputs: MoeInputs, digest: str | None) -> ContractTerm:
    """Of whom tokens ask. Plans under other routings do other work, whatever it is called."""
    settings, routing = inputs.settings, inputs.routing
    key: Hashable = "uniform"
    text = "evenly"
    path: Path = ("moe",)
    if inputs.is_uniform:
        pass
    elif routing is not None:
        key = digest or settings.routing, settings.routing_layers
        level = routing.level.value
        text, path = f"{settings.routing}: {level}", ("moe", "routing")
    elif settings.skew is not None:
        key, path = settings.skew, ("moe", "skew")
        text = f"skew {settings.skew.kind.value}"
    return ContractTerm(ContractField.ROUTING, key, text, ContractTermOrigin.DERIVED, path)


def _sequence_lengths(resolved: ResolvedPlan) -> tuple[tuple[int, int], ...] | None:
    """(tokens, microbatches) ascending; one length of all is the same however many there are."""
    length = resolved.sequence_length
    if length is None:
        return None
    if isinstance(length, int):
        return ((length, 0),)
    counts = Counter(length[number] for number in resolved.sizes.of_microbatch)
    return tuple(sorted(counts.items()))


def _written(lengths: tuple[tuple[int, int], ...]) -> str:
    if len(lengths) == 1:
        return f"{lengths[0][0]} tokens"
    shown = ", ".join(
        f"{tokens} tokens in {counted(count, 'microbatch', 'microbatches')}"
        for tokens, count in lengths[:_MOST_LENGTHS]
    )
    more = len(lengths) - _MOST_LENGTHS
    return f"{shown} and {more} more lengths" if more > 0 else shown
