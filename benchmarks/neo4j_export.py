"""Seconds and memory of the CSV export for Neo4j's import tool.

    python benchmarks/neo4j_export.py --scale 0.1
    python benchmarks/neo4j_export.py --scale 1            # 1.04 M nodes, 9.4 M edges

The graph is that of ``plan_execution.py``; every second node has an alias. For comparison the tables ``nodes`` and
``edges`` are written as they are by Python's ``csv.writer``, which is the plain way to do it. Each way runs in a
process of its own, whose peak of resident memory (DuckDB's included) is given; it needs Linux.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from plan_execution import SCHEMA, fill_store

from skb_pipeline.graph.neo4j.export import export_skb
from skb_pipeline.storage.duck import connect

DATA = {"data_version": "synthetic", "identity": "synthetic"}


def main() -> None:
    """Build the graph and export it in both ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs=3, metavar=("HOW", "STORE", "FOLDER"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        run(args.only[0], Path(args.only[1]), Path(args.only[2]))
        return
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "skb.duckdb"
        with connect(store) as con:
            fill_store(con, args.scale, np.random.default_rng(args.seed))
            con.execute("INSERT INTO aliases SELECT node_id, 'alias, ' || node_id FROM nodes WHERE node_id % 2 = 0")
            sizes = [con.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0] for table in ("nodes", "edges")]
        print(f"{sizes[0]:,} nodes, {sizes[1]:,} edges")
        for how in ("export", "export gzip", "csv.writer"):
            target = Path(folder) / how.replace(" ", "-")
            subprocess.run([sys.executable, __file__, "--only", how, str(store), str(target)], check=True)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def run(how: str, store: Path, folder: Path) -> None:
    """Export in one way and print what it took."""
    start = time.perf_counter()
    with connect(store, read_only=True) as con:
        if how == "csv.writer":
            folder.mkdir()
            for table in ("nodes", "edges"):
                rows = con.execute(f"SELECT * FROM {table}")
                with (folder / f"{table}.csv").open("w", newline="") as file:
                    writer = csv.writer(file)
                    while chunk := rows.fetchmany(10_000):
                        writer.writerows(chunk)
        else:
            export_skb(con, SCHEMA, folder, dataset="bench", data=DATA, gzip=how.endswith("gzip"))
    seconds = time.perf_counter() - start
    megabytes = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    # Not getrusage, whose peak begins with that of the process this one was started from.
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    peak = int(line.split()[1]) / 1024
    print(f"{how:12} {seconds:7.2f} s  {megabytes:8.1f} MB written  peak RSS {peak:7.0f} MB", flush=True)


if __name__ == "__main__":
    main()
