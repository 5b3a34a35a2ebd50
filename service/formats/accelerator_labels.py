"""Labels and annotations by which tools say which hosts share an accelerator domain (NVLink)."""

from collections.abc import Mapping

from service.formats.marked_yaml import Marked

__all__ = ["CLIQUE_LABEL", "DOMAIN_LABELS", "domain_label"]

# ClusterUUID.CliqueID, from the driver itself; written by NVIDIA's GPU feature discovery.
CLIQUE_LABEL = "nvidia.com/gpu.clique"
# The nearer to the hardware, the earlier; topograph has renamed its own twice.
DOMAIN_LABELS = (
    CLIQUE_LABEL,
    "accelerator.topograph.run/domain",
    "accelerator.topology.test/domain",
    "network.topology.nvidia.com/accelerator",
    "network.topology.kubernetes.io/accelerator",
)


def domain_label(labels: Mapping[str, Marked]) -> tuple[str, Marked] | None:
    """The first of the labels that names a domain, with its value."""
    for key in DOMAIN_LABELS:
        if key in labels and labels[key].text:
            return key, labels[key]
    return None
