"""The tests of the core are held to what tests/conftest.py promises."""

import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def test_no_socket_can_be_opened() -> None:
    with pytest.raises(pytest.fail.Exception, match="open no sockets"):
        socket.socket()


def test_the_profile_of_properties_is_the_projects_own() -> None:
    current = settings()
    assert current.derandomize
    assert current.deadline is None


@given(family=st.sampled_from([socket.AF_INET, socket.AF_UNIX]))
def test_properties_run_under_the_same_rule(family: int) -> None:
    with pytest.raises(pytest.fail.Exception):
        socket.socket(family)
