"""Benchmarks among the files of a cluster: what they measured reaches its links, or is left out."""

from service.core.topology.cluster import LinkKind
from service.core.topology.join import Stated, join
from service.core.topology.readings import MeasuredTransfer, Reading, TransferScope
from tests.core.topology.found import inside, rail_fabric

H100 = Stated(gpu="H100 SXM5")


def bandwidth(gigabytes: float, line: int) -> MeasuredTransfer:
    return MeasuredTransfer(
        tool="perftest",
        collective="write",
        message_bytes=65536,
        ranks=2,
        scope=TransferScope.BETWEEN_HOSTS,
        line=line,
        bus_bytes_per_second=gigabytes * 1e9,
    )


def benchmark(*transfers: MeasuredTransfer) -> Reading:
    return Reading(format="perftest", facts={"rows": len(transfers)}, measurements=transfers)


def test_a_benchmark_beside_a_fabric_gives_its_cables_an_effective_rate() -> None:
    files = [benchmark(bandwidth(30, 7), bandwidth(49, 8)), rail_fabric(), inside()]
    joined = join(files, H100)
    cables = [link for link in joined.spec.links if link.kind is LinkKind.NETWORK]
    assert {link.effective_bytes_per_second for link in cables} == {49e9}
    assert {link.bandwidth_bytes_per_second for link in cables} == {50e9}
    assert any("98 % of their nominal rate" in sentence for sentence in joined.assumptions)
    assert join(files[1:], H100).spec.links != joined.spec.links


def test_a_benchmark_that_fits_no_link_is_left_out_with_file_and_line() -> None:
    joined = join([rail_fabric(), inside(), benchmark(bandwidth(51, 9), bandwidth(52, 10))], H100)
    (left,) = [item for item in joined.left_out if item.file == 2]
    assert left.line == 9
    assert (
        "2 measurements of write: it, or another row of its run, asks more of network"
        in left.detail
    )
    assert join([rail_fabric(), inside()], H100).spec == joined.spec
