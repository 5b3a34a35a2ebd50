"""The heart: numbers in, numbers out. Nothing here reads a clock, a disk or a socket."""
