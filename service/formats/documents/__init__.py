"""The stored documents as typed structs, each with its conversion to the core."""
