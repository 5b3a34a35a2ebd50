"""Folders that travel with the package."""

import pytest

from service.resources import resource_folder


def test_the_migrations_are_found() -> None:
    assert (resource_folder("migrations") / "env.py").is_file()


def test_a_folder_that_is_nowhere_is_named_with_the_places() -> None:
    with pytest.raises(FileNotFoundError, match=r"no folder 'nothing': looked in .*_resources"):
        resource_folder("nothing")
