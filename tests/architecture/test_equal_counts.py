"""The count of tests by database reads the names that parametrised tests have."""

from tests.plugins.equal_counts import passed_by_backend


def test_counts_are_read_off_the_names_of_tests() -> None:
    names = [
        "tests/a.py::test_one[sqlite]",
        "tests/a.py::test_one[postgresql]",
        "tests/a.py::test_two[postgresql-bad-1]",
        "tests/a.py::test_three[not_sqlite]",
        "tests/a.py::test_four",
    ]
    assert passed_by_backend(names) == {"sqlite": 1, "postgresql": 2}
