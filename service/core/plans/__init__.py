"""Plans: degrees, partition, placement, and the checks that name every fault of a plan."""
