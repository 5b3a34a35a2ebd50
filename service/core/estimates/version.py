"""The version of the cost model, part of every estimate's identity."""

__all__ = ["MODEL_VERSION"]

# Raised by hand whenever any number of any answer changes for the same inputs; a test over
# golden answers fails when they move and this does not.
MODEL_VERSION = "3"
