"""Bounds and predictions of many transfers at once: ports, links, cuts and concurrent flow."""
