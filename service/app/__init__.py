"""Use cases: plain functions over the ports of `service.app.ports`."""
