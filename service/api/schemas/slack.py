"""Wire types of the slack: how much later operations may end."""

from typing import Annotated

import msgspec
from msgspec import Meta

from service.core.schedules.slack import LeastSlack
from service.core.schedules.slack import Slack as CoreSlack
from service.core.units import to_seconds

__all__ = ["OperationSlack", "Slack", "slack_terms"]


class OperationSlack(msgspec.Struct, kw_only=True, frozen=True):
    """The operation with the least slack of several; of equals the one that its rank runs first."""

    stage: Annotated[int, Meta(ge=0)]
    kind: Annotated[str, Meta(description="Kind of operation.", examples=["forward"])]
    microbatch: Annotated[int, Meta(ge=0)]
    slack_seconds: Annotated[
        float, Meta(ge=0, description="How much later it may end without a later makespan.")
    ]


class Slack(msgspec.Struct, kw_only=True, frozen=True):
    """Total slack with every rank's order held fixed, and in `link` mode every link's.

    Each number holds for one operation alone; the operations of a chain share the chain's slack. An
    operation without slack is on a chain that sets the makespan.
    """

    stages: Annotated[list[OperationSlack], Meta(description="The least of each stage.")]
    kinds: Annotated[list[OperationSlack], Meta(description="The least of each kind.")]
    operations: Annotated[
        list[OperationSlack], Meta(description="The least of each stage and kind.")
    ]


def slack_terms(slack: CoreSlack) -> Slack:
    """The wire form of a timeline's slack."""
    return Slack(
        stages=[_operation(least) for least in slack.by_stage],
        kinds=[_operation(least) for least in slack.by_kind],
        operations=[_operation(least) for least in slack.least],
    )


def _operation(least: LeastSlack) -> OperationSlack:
    return OperationSlack(
        stage=least.stage,
        kind=least.kind.name.lower(),
        microbatch=least.microbatch,
        slack_seconds=to_seconds(least.picoseconds),
    )
