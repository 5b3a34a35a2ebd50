"""The project speaks of itself alone: not of the machine or the hands it was written with."""

import re
from pathlib import Path

import pytest

from tests.architecture.repository import ROOT, committed_files


def spelled(*parts: str) -> str:
    """A needle in pieces, so that this file does not hold what it looks for."""
    return "".join(parts)


# Registries are configured on each machine. A committed host would go past that.
REGISTRIES = [
    spelled("py", "pi.org"),
    spelled("python", "hosted.org"),
    spelled("npm", "js.org"),
    spelled("npm", "js.com"),
    spelled("yarn", "pkg.com"),
    spelled("deb", ".debian.org"),
    spelled("proxy.go", "lang.org"),
    spelled("crates", ".io"),
    spelled("index", "-url"),
    spelled("index", "_url ="),
    spelled("--find", "-links"),
]

MACHINE_PATHS = [
    spelled("/", "work/"),
    spelled("/", "root/"),
    spelled("/", "home/"),
    spelled("/", "Users/"),
    spelled("/opt/", "wheels"),
]

HANDS = [
    spelled(r"\bissue", r"s?\s*#?\d"),
    spelled(r"\bC", r"EO\b"),
    spelled(r"\bsub-?", r"agents?\b"),
    spelled(r"\b(another|earlier|last|later|next|previous) ", r"session\b"),
    spelled(r"\bthe ", r"(brief|lead|steering)\b(?! (of|to|time|in))"),
    spelled(r"\bhelper ", r"sessions?\b"),
    spelled(r"\b(cla", r"ude|anthro", r"pic|chat", r"gpt|copi", r"lot)\b"),
    spelled(r"\b(language ", r"model|AI) (wrote|generated|assistant)"),
]

NEEDLES = [
    *((re.compile(re.escape(text), re.IGNORECASE), "a registry") for text in REGISTRIES),
    *((re.compile(re.escape(text)), "a path of one machine") for text in MACHINE_PATHS),
    *((re.compile(text, re.IGNORECASE), "how it was written") for text in HANDS),
]


def findings(name: Path, text: str) -> list[str]:
    return [
        f"{name}:{number}: names {what}: {line.strip()[:120]}"
        for number, line in enumerate(text.splitlines(), start=1)
        for needle, what in NEEDLES
        if needle.search(line)
    ]


def test_no_committed_file_names_a_registry_a_machine_or_its_making() -> None:
    found = [
        finding
        for name in committed_files()
        for finding in findings(name, (ROOT / name).read_bytes().decode("utf-8", "replace"))
    ]
    assert not found, "\n" + "\n".join(found)


def test_no_committed_name_does_either() -> None:
    found = [finding for name in committed_files() for finding in findings(name, f"/{name}")]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        spelled("index", "-url = https://example.test/simple"),
        spelled("see https://files.python", "hosted.org/packages"),
        spelled("open('/", "root/data.json')"),
        spelled("as asked in issue ", "#12"),
        spelled("written in another ", "session"),
    ],
)
def test_a_planted_line_is_found(line: str) -> None:
    assert findings(Path("planted.txt"), line)


@pytest.mark.parametrize(
    "line",
    [
        "async with the session factory of the engine",
        'scope="session"',
        "one server for this session",
        "issues a warning for each of 12 links",
        "requirements/runtime.txt is installed with hashes",
    ],
)
def test_a_harmless_line_is_not(line: str) -> None:
    assert not findings(Path("planted.txt"), line)


def test_lock_files_with_addresses_are_not_committed() -> None:
    names = {name.name for name in committed_files()}
    assert "uv.lock" not in names
    for pins in (ROOT / "requirements").glob("*.txt"):
        text = pins.read_text(encoding="utf-8")
        assert "://" not in text, pins
        requirements = re.findall(r"^[a-z0-9].*?(?:\\\n.*?)*$", text, re.MULTILINE)
        unpinned = [r for r in requirements if "==" not in r or "--hash=sha256:" not in r]
        assert requirements, pins
        assert not unpinned, pins


def test_decisions_are_numbered_one_by_one() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    numbers = [int(page.name.partition("-")[0]) for page in pages]
    assert numbers == list(range(1, len(pages) + 1))
    for number, page in zip(numbers, pages, strict=True):
        title = page.read_text(encoding="utf-8").partition("\n")[0]
        assert title.startswith(f"# {number}. "), page.name
