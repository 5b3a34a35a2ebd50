"""Published values beside ours, as docs/validation.md has them.

python -m validation                  print the page
python -m validation --files FOLDER   compute what needs the files in FOLDER, and keep it
"""

import argparse
from pathlib import Path

from validation.kept import KEPT, read_kept, written
from validation.page import page, rows_of
from validation.rows import Files
from validation.suite import SECTIONS


def main() -> None:
    """Print the page, or say which kept rows have moved and keep the new ones."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--files", type=Path, help="the folder with files that others published")
    folder = parser.parse_args().files
    if folder is None:
        print(page([(section, rows_of(section)) for section in SECTIONS]))
        return
    files, before = Files(folder), read_kept()
    kept = {
        section.name: section.rows_of_files(files)
        for section in SECTIONS
        if section.rows_of_files is not None
    }
    KEPT.write_bytes(written(kept))
    for name, rows in read_kept().items():
        moved = sum(row not in before.get(name, ()) for row in rows)
        print(f"{name}: {len(rows)} rows, {moved} of them new or moved")


if __name__ == "__main__":
    main()
