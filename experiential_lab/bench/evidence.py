"""Goals 7 and 8: framing and import against a bare parse, memory against the length of a file, digests against sha256."""

import json
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

from experiential_lab.bench import figure, left_out, paired, versions
from experiential_lab.evidence.corpus import build_evidence
from experiential_lab.evidence.framing import frame
from experiential_lab.evidence.importers.format import Source
from experiential_lab.evidence.sources import Declared, read_file
from experiential_lab.records import canonical_bytes, digest

SIZES_MB = (50, 100, 200)
FILLER = "lorem ipsum dolor sit amet " * 40
_CHILD = """
import resource, sys
from experiential_lab import Lab
Lab(sys.argv[2]).import_traces(sys.argv[1]).counts
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def framing(traces: Path) -> list[dict[str, Any]]:
    """Goal 7, first part: records with a digest and a place each, against a bare orjson parse of the same file."""
    import orjson

    data = traces.read_bytes()
    parse = _parse_lines if b"\n{" in data[:100_000] else orjson.loads
    ratio = paired(lambda: Source("", "", frame(data)).readable(), lambda: parse(data))
    return [figure("7", "framing against a bare orjson parse", 1 / ratio, ">= 0.40")]


def importing(traces: Path) -> list[dict[str, Any]]:
    """Goal 7, second part: all that an import computes (spans, pairing, digests, every line), without the disk."""
    import orjson

    data = traces.read_bytes()
    parse = _parse_lines if b"\n{" in data[:100_000] else orjson.loads
    ratio = paired(lambda: build_evidence([read_file(traces, Declared())], None), lambda: parse(data))
    return [figure("7", "import against a bare orjson parse", 1 / ratio, ">= 0.10")]


def _parse_lines(data: bytes) -> list[Any]:
    import orjson

    return [orjson.loads(line) for line in data.split(b"\n") if line]


def memory(traces: Path) -> list[dict[str, Any]]:
    """Goal 7, third part: peak memory of a process that imports 50, 100 and 200 MB of conversations; made here."""
    peaks = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES_MB:
            path = Path(folder) / "made.jsonl"
            _make(path, size << 20)
            command = [sys.executable, "-c", _CHILD, str(path), f"{folder}/{size}.lab"]
            peak = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            peaks[str(size)] = int(peak) // (1 << 10)
    slope = (peaks["200"] - peaks["50"]) / 150
    return [
        figure("7", "peak MB of an import per MB of JSON lines", slope, "<= 0.25", rounds=1, peak_mb_by_size_mb=peaks)
    ]


def _make(path: Path, size: int) -> None:
    with open(path, "w", encoding="utf-8") as file:
        number = 0
        while file.tell() < size:
            file.write(json.dumps({"messages": _conversation(number)}) + "\n")
            number += 1


def _conversation(number: int) -> list[dict[str, Any]]:
    call = {"id": "k", "type": "function", "function": {"name": "lookup", "arguments": f'{{"id": {number}}}'}}
    return [
        {"role": "user", "content": f"Where is order {number}? {FILLER}"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "k", "content": f"packed {number} {FILLER}"},
        {"role": "assistant", "content": f"Order {number} is packed. {FILLER}"},
        {"role": "user", "content": f"Thank you. {FILLER}"},
    ]


def digests(traces: Path) -> list[dict[str, Any]]:
    """Goal 8: the digest of each record, against one sha256 of the same bytes and against the rfc8785 package."""
    records = build_evidence([read_file(traces, Declared())], None).transitions
    whole = b"".join(map(canonical_bytes, records))
    ratio = paired(lambda: list(map(digest, records)), lambda: sha256(whole).digest())
    found = [figure("8", "digests of records against one sha256 of their bytes", ratio, "<= 7")]
    try:
        import msgspec
        import rfc8785
    except ImportError:
        return [*found, left_out("8", "digests of records against rfc8785", "rfc8785")]
    plain = [msgspec.to_builtins(record) for record in records]
    assert b"".join(map(rfc8785.dumps, plain)) == whole
    ratio = paired(lambda: list(map(digest, records)), lambda: [sha256(rfc8785.dumps(each)).digest() for each in plain])
    return [
        *found,
        figure("8", "digests of records against rfc8785", 1 / ratio, ">= 10", versions=versions("msgspec", "rfc8785")),
    ]
