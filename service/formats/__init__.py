"""Bytes to core objects and back: one importer, exporter or document type in each file."""
