"""What questions about a topology weigh, before they are answered."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from service.app import topology_work
from service.app.clusters import ClusterCache
from service.app.flows import FlowInquiry
from service.app.ports import DocumentKind, Revision
from service.app.services import Services
from service.app.weights import LOOK_UNITS, Preparation, Seen, Weight
from service.core.topology.cluster import Cluster
from service.core.topology.expand import expand
from service.core.topology.flows.demands import CollectiveKind
from service.core.topology.flows.questions import Collective, Flow, FlowQuestion
from service.core.topology.spec import ClusterSpec, HostSpec, LeafSpine
from tests.app.fakes import FakeClock, FakeStorage, InlineExecutor


def cluster(hosts: int) -> Cluster:
    own = HostSpec(name="host", count=hosts, design="dgx-h100")
    return expand(ClusterSpec(hosts=(own,), fabric=LeafSpine(hosts_per_leaf=8, spines=8))).cluster


SMALL, LARGE = cluster(2), cluster(64)


def size(made: Cluster) -> int:
    return len(made.vertices) + len(made.links)


def all_to_all(*patterns: str) -> FlowInquiry:
    asked = Collective(CollectiveKind.ALL_TO_ALL, None, message_bytes=1000)
    return FlowInquiry(FlowQuestion(collective=asked), patterns or None)


def messages(*pairs: tuple[str, str]) -> FlowInquiry:
    return FlowInquiry(FlowQuestion(flows=tuple(Flow(*pair, 1000) for pair in pairs)))


def test_more_to_find_weighs_more() -> None:
    one, two = ("host0/gpu0", "host1/gpu0"), ("host0/gpu1", "host1/gpu1")
    heavier = [
        (topology_work.flows(SMALL, messages(one)), topology_work.flows(SMALL, messages(one, two))),
        (topology_work.flows(SMALL, messages(one)), topology_work.flows(LARGE, messages(one))),
        (
            topology_work.flows(LARGE, all_to_all("host0/gpu[0-1]")),
            topology_work.flows(LARGE, all_to_all("host[0-7]/gpu*")),
        ),
        (
            topology_work.paths(LARGE, "host0/gpu0", 0, is_part=False),
            topology_work.paths(LARGE, "host0/gpu0", 100, is_part=False),
        ),
        (
            topology_work.paths(LARGE, "host0/gpu0", 0, is_part=False),
            topology_work.paths(LARGE, "host0/gpu0", 0, is_part=True),
        ),
        (
            topology_work.sharing(LARGE, 1, is_part=False),
            topology_work.sharing(LARGE, 9, is_part=False),
        ),
        (topology_work.picture(LARGE, 0), topology_work.picture(LARGE, 128)),
    ]
    for less, more in heavier:
        assert 0 < less.units < more.units


def test_what_is_known_to_be_too_much_for_paths_weighs_as_cuts_do() -> None:
    """512 devices make more pairs than are looked up: programs and cuts are left."""
    some = topology_work.flows(LARGE, all_to_all("host[0-31]/gpu*"))
    every = topology_work.flows(LARGE, all_to_all())
    assert every.units < some.units


def test_a_question_at_fault_weighs_a_look_and_is_refused_by_its_answer() -> None:
    """So that all of its faults are told together."""
    at_fault = topology_work.flows(SMALL, all_to_all("host9/gpu*"))
    assert at_fault.units < topology_work.flows(SMALL, all_to_all("host0/gpu*")).units


def test_an_unknown_source_of_paths_has_a_weight() -> None:
    """It is refused with its place when it is answered."""
    assert topology_work.paths(SMALL, "nowhere", 0, is_part=False).units > 0


def test_preparations_count_once_and_answers_once() -> None:
    seen = Seen()
    asked = Weight(1_000_000, (Preparation.PATHS, Preparation.FLOWS), question="a")
    other = replace(asked, question="b")
    both = (Preparation.PATHS.value + Preparation.FLOWS.value) * 100
    assert seen.units(asked, 100) == 1_000_000 + both
    seen.note(asked)
    assert seen.units(asked, 100) == LOOK_UNITS * 100
    assert seen.units(other, 100) == 1_000_000
    for number in range(40):
        seen.note(replace(asked, question=number))
    assert seen.units(asked, 100) == 1_000_000


class Held:
    """What was held, in order; refuses what is more than `most`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.units: list[int] = []

    def hold_preparation(self, size_bytes: int) -> None:
        raise AssertionError(size_bytes)

    def hold_work(self, units: int) -> None:
        if units > self.most:
            raise OverflowError(units)
        self.units.append(units)


def revision() -> Revision:
    content = b'{"hosts":[{"name":"host","count":2,"design":"dgx-h100"}]}'
    counts = {"links": 10, "vertices_by_kind": {"gpu": 3, "nic": 2}}
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Revision(DocumentKind.TOPOLOGY, "a", 1, "sha256:a", now, counts, (), content)


def services(holder: Held) -> Services:
    executor = InlineExecutor()
    return Services(FakeStorage(), executor, FakeClock(), ClusterCache(executor), holder=holder)


async def test_expanding_is_held_the_first_time_only() -> None:
    held = Held(10**9)
    service = services(held)
    await topology_work.expanded(service, revision())
    await topology_work.expanded(service, revision())
    assert held.units == [1500]


async def test_work_that_would_only_wait_is_not_begun() -> None:
    held = Held(10**9)
    service = services(held)
    expansion = await topology_work.expanded(service, revision())
    done: list[int] = []

    def weigh(_: Cluster) -> Weight:
        return Weight(5000)

    def answer() -> bytes:
        done.append(1)
        return b"answer"

    held.most = 4999
    with pytest.raises(OverflowError):
        await topology_work.answered(service, revision(), expansion, weigh, answer)
    assert done == []
    held.most = 5000
    found = await topology_work.answered(service, revision(), expansion, weigh, answer)
    assert (found, held.units[-1], done) == (b"answer", 5000, [1])
