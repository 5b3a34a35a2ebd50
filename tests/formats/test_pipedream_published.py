"""Published PipeDream profiles: bytes at the cuts of their best partitions."""

from pathlib import Path

import pytest

from service.core.plans.plan import ResolvedPlan
from service.formats.pipedream import looks_like_pipedream
from validation.pipedream import best_plan

PROFILES = (
    Path(__file__).resolve().parents[3] / "shared" / "data" / "profiles" / "pipedream" / "profiler"
)
IMAGES = PROFILES / "image_classification" / "profiles"

pytestmark = pytest.mark.skipif(not PROFILES.is_dir(), reason="no published profiles at hand")


def best_of(folder: Path, microbatch_size: int) -> ResolvedPlan:
    content = (folder / "graph.txt").read_bytes()
    assert looks_like_pipedream(content)
    return best_plan(content, microbatch_size)


def test_boundary_bytes_of_vgg16_by_hand() -> None:
    """vgg16 is a chain, so one tensor crosses each cut; it was profiled with 128 images in fp32.

    The cuts lie behind the second convolution (64 channels of 224 x 224), behind the first one of
    the second block (128 of 112 x 112) and behind the second ReLU of the third (256 of 56 x 56).
    """
    resolved = best_of(IMAGES / "vgg16", microbatch_size=128)
    by_hand = [
        128 * 64 * 224 * 224 * 4,
        128 * 128 * 112 * 112 * 4,
        128 * 256 * 56 * 56 * 4,
    ]
    assert by_hand == [1_644_167_168, 822_083_584, 411_041_792]
    assert [boundary.forward_bytes for boundary in resolved.boundaries] == by_hand
    assert [boundary.backward_bytes for boundary in resolved.boundaries] == by_hand


def test_resnet50_sends_a_residual_beside_the_block_it_skips() -> None:
    """The last cut runs through a residual block: its input and the convolution inside cross.

    Both hold 1024 channels of 14 x 14 for 128 images in fp32; with one of them forgotten, or the
    input counted for each of its two consumers, the sum would differ.
    """
    resolved = best_of(IMAGES / "resnet50", microbatch_size=128)
    last = resolved.boundaries[2]
    assert last.tensors is not None
    assert [tensor.name for tensor in last.tensors] == ["node111", "node118"]
    assert last.forward_bytes == last.backward_bytes == 2 * 128 * 1024 * 14 * 14 * 4
