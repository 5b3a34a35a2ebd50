"""Clusters as directed graphs of devices and links; physical paths; bounds of transfers."""
