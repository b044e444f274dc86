"""Write the course's text, ``lmhead_course/data/pride_and_prejudice.txt``, from R's package janeaustenr.

    python tools/austen_text.py path/to/Rdata.rdb

The file ``Rdata.rdb`` lies in Debian's package ``r-cran-janeaustenr`` (version 1.0.0-1; ``apt-get download``, then
``dpkg-deb -x``). It holds six records, each a length and a zlib stream of R's XDR format: a vector of lines.
"""

import struct
import sys
import zlib
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "lmhead_course" / "data" / "pride_and_prejudice.txt"
TITLE, FIRST, AFTER = "PRIDE AND PREJUDICE", "Chapter 1", "Chapter 24"
CHARSXP = bytes([0, 4, 0, 9])  # R's mark of one string in ASCII; its length follows


def records(data: bytes) -> list[bytes]:
    """Return the unpacked records of an R lazy-load file."""
    found = []
    while data:
        stream = zlib.decompressobj()
        found.append(stream.decompress(data[4:]))
        data = stream.unused_data
    return found


def lines(record: bytes) -> list[str]:
    """Return the strings of a record in order. Raises ``ValueError`` where one is not marked as ASCII."""
    at, found = record.index(CHARSXP), []
    (count,) = struct.unpack(">I", record[at - 4 : at])
    for _ in range(count):
        if record[at : at + 4] != CHARSXP:
            raise ValueError(f"expected an ASCII string at byte {at}, got the mark {record[at : at + 4]!r}")
        (length,) = struct.unpack(">I", record[at + 4 : at + 8])
        found.append(record[at + 8 : at + 8 + length].decode("ascii"))
        at += 8 + length
    return found


def first_volume(novel: list[str]) -> str:
    """Return chapters 1 to 23, one paragraph a line; underscores, which stand for italics, are left out."""
    kept = novel[novel.index(FIRST) : novel.index(AFTER)]
    paragraphs = "\n".join(kept).replace("_", "").split("\n\n")
    joined = (" ".join(paragraph.split()) for paragraph in paragraphs)
    return "\n\n".join(paragraph for paragraph in joined if paragraph) + "\n"


def main(path: str) -> None:
    """Find the novel among the records and write its first volume."""
    (novel,) = [record for record in records(Path(path).read_bytes()) if TITLE.encode() in record[:200]]
    TARGET.write_text(first_volume(lines(novel)), encoding="ascii", newline="\n")
    print(f"{TARGET.name}: {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
