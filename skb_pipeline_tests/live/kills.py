"""Runs of ``demo`` that are killed at random moments: ``python -m skb_pipeline_tests.live.kills FOLDER``.

``FOLDER KILLS`` for another number than 50. A home is killed up to ten times, each run goes on after the one that was
killed, and the last one ends. Then what is there must equal a build from nothing: data versions of all artefacts, the
metric table, and every file but those that hold times or run ids, byte by byte; and nothing half-done may be left. A
line is printed for each home.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from skb_pipeline.storage.artifacts import WORK_PREFIX, ArtifactStore
from skb_pipeline.storage.atomic import SCRATCH_PREFIX
from skb_pipeline_tests.live.built import metric_rows, versions

DATASET = "demo"
KILLS_PER_HOME = 10
_WITH_TIMES = {".duckdb", ".json"}
"""DuckDB files are not the same bytes twice, manifests tell when they were written; both have data versions."""
_TIMES = {"milliseconds"}
"""Columns that are no content (``Frame.content``)."""


def run(home: Path, kill_after: float | None = None) -> float | None:
    """Seconds that a run of the whole job took; None if it was killed, with all its processes, before it ended."""
    command = [sys.executable, "-m", "skb_pipeline.cli", "run", "--dataset", DATASET]
    begun = time.monotonic()
    process = subprocess.Popen(
        command, env={**os.environ, "SKB_HOME": str(home)}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        _, told = process.communicate(timeout=kill_after)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None
    assert process.returncode == 0, told
    return time.monotonic() - begun


def files(home: Path) -> dict[str, str]:
    """``stage/name/file`` -> digest of the bytes, of the current versions' files."""
    store, found = ArtifactStore(home / "store"), {}
    for asset in versions(home, DATASET):
        folder = store.require(DATASET, asset).path
        for path in folder.rglob("*"):
            if path.is_file() and path.suffix not in _WITH_TIMES:
                found[f"{asset}/{path.relative_to(folder)}"] = hashlib.sha256(content(path)).hexdigest()
    return found


def content(path: Path) -> bytes:
    """The bytes of a file; of a frame with columns of times those of the others."""
    if path.suffix != ".parquet" or not _TIMES & set(pq.read_schema(path).names):
        return path.read_bytes()
    table = pq.read_table(path, columns=[name for name in pq.read_schema(path).names if name not in _TIMES])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()


def left_over(home: Path) -> list[str]:
    """Paths below a home that a finished run should not have left."""
    marks = (SCRATCH_PREFIX, WORK_PREFIX)
    return sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.name.startswith(marks))


def differing(home: Path, whole: Path) -> list[str]:
    """What a home has that one which was never killed has not, or has otherwise; empty for nothing."""
    found = [f"left over: {path}" for path in left_over(home)]
    for what, of in (("data version", lambda at: versions(at, DATASET)), ("bytes", files)):
        mine, its = of(home), of(whole)
        found += [f"{key}: another {what}" for key in sorted(mine.keys() | its.keys()) if mine.get(key) != its.get(key)]
    return found + (["the metric table"] if metric_rows(home, DATASET) != metric_rows(whole, DATASET) else [])


def kill_homes(whole: Path, seconds: float, folder: Path, kills: int) -> None:
    """Kill runs in homes of their own; fails at the first home that differs from ``whole``.

    Most of a run is embedding, so in every second home all vectors are there already, and kills meet the other stages.
    """
    draw, done, number = random.Random(11), 0, 0
    while done < kills:
        home, moments = folder / f"killed{number}", []
        if number % 2:
            shutil.copytree(whole / "cache", home / "cache")
        while len(moments) < min(KILLS_PER_HOME, kills - done):
            moment = draw.uniform(0, seconds / 4)
            if run(home, kill_after=moment) is not None:
                break
            moments.append(moment)
        done += len(moments)
        rest = run(home)
        found = differing(home, whole)
        told = ", ".join(f"{moment:.0f}" for moment in moments)
        print(f"{done} kills; killed after {told} s, then {rest:.0f} s: {found or 'equal'}", flush=True)
        assert not found
        shutil.rmtree(home)
        number += 1


def main(folder: Path, kills: int = 50) -> None:
    """Kill runs in an empty folder."""
    whole = folder / "whole"
    seconds = run(whole)
    assert seconds is not None
    print(f"a run that nobody kills: {seconds:.0f} s", flush=True)
    kill_homes(whole, seconds, folder, kills)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
