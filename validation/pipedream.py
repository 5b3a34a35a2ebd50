"""PipeDream's profiles: totals, and the slowest of the best four stages."""

from collections.abc import Iterator

from service.core.estimates.cadence import plan_cadence
from service.core.estimates.simulation import simulate_plan
from service.core.plans.plan import Degrees, Partition, Plan, ResolvedPlan, Schedule, Workload
from service.core.plans.resolve import resolve
from service.core.units import exact_seconds
from service.formats.documents import model as models
from service.formats.documents import profile as profiles
from service.formats.pipedream import read_pipedream
from validation.best_partition import best_four_stages
from validation.rows import Files, Row, Section, printed

__all__ = ["SECTIONS", "best_plan"]

# Any size serves: times are recorded for one, whose size the file does not say.
_MICROBATCH_SIZE = 64

PUBLISHED = (
    ("vgg16", "image_classification", "0.672535", "0.216450"),
    ("resnet50", "image_classification", "0.443419", "0.111497"),
    ("alexnet", "image_classification", "0.085321", "0.028721"),
    ("gnmt", "translation", "0.089416", "0.025868"),
)


def _rows(files: Files) -> Iterator[Row]:
    for name, task, total, slowest in PUBLISHED:
        content = files.read(f"profiles/pipedream/profiler/{task}/profiles/{name}/graph.txt")
        work = _stage_seconds(content)
        yield Row(f"{name}: all stages together", total, sum(work))
        yield Row(f"{name}: the slowest of four", slowest, max(work))


def _stage_seconds(content: bytes) -> list[float]:
    cadence = plan_cadence(simulate_plan(best_plan(content, _MICROBATCH_SIZE)))
    return [exact_seconds(stage.work) for stage in cadence.stages]


def best_plan(content: bytes, microbatch_size: int) -> ResolvedPlan:
    """The plan of a file whose slowest of four stages is as quick as it can be."""
    read = read_pipedream(content, microbatch_size=microbatch_size)
    model, profile = models.to_core(read.model), profiles.to_core(read.profile)
    costs = []
    for layer in model.layers:
        if layer.is_input:
            costs.append(0)
            continue
        found = profile.lookup(layer.name, microbatch_size)
        costs.append(found.forward_picoseconds + (found.backward_picoseconds or 0))
    _, stages = best_four_stages(model, costs)
    plan = Plan(
        degrees=Degrees(4),
        workload=Workload(microbatches=8, microbatch_size=microbatch_size),
        schedule=Schedule("1f1b"),
        model="model@1",
        profile="profile@1",
        partition=Partition(stages=tuple(tuple(names) for names in stages)),
    )
    return resolve(plan, model=model, profile=profile)


SECTIONS = (
    Section(
        name="pipedream",
        title="Four straight stages of PipeDream's profiles",
        source=(
            "the profiles in msr-fiddle/pipedream, and the optimum of its planner's rule for four "
            "stages without replication: all down-sets of the graph, without the time of the "
            "loader."
        ),
        text="""
Each profile imported, its stages found by an exhaustive search of its own
(`validation/best_partition.py`), then priced as a plan with `partition.stages`: forward and
backward of one microbatch, without transfers.
""",
        what="profile",
        unit="s",
        rule=printed("times are whole microseconds, so sums of them are exact."),
        rows_of_files=lambda files: tuple(_rows(files)),
    ),
)
