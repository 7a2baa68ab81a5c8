"""Count the words of docs/, page by page; more than `MOST` in all is an error.

python scripts/count_words.py
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOST = 35_000
"""A reader's patience; code and tables count, bars of tables and other signs do not."""


def count_words(text: str) -> int:
    """Count what stands between white space and has a letter or a digit in it."""
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def main() -> int:
    """Print the counts; returns the exit code."""
    counts = {path: count_words(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "docs").rglob("*.md"))}
    if "-v" in sys.argv[1:]:
        for path, count in sorted(counts.items(), key=lambda item: item[1]):
            print(f"{count:7,}  {path.relative_to(ROOT)}")
    total = sum(counts.values())
    print(f"{total:,} words in {len(counts)} pages of docs/, at most {MOST:,}")
    return int(total > MOST)


if __name__ == "__main__":
    sys.exit(main())
