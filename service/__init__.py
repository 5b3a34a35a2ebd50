"""Stagefare: what a distributed training plan costs, before anyone books the cluster."""
