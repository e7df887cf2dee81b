"""From STaRK's files to an SKB, its documents, its in-memory graph and its export for Neo4j, at two sizes.

    python benchmarks/ingest.py                            # scales 0.02 and 0.1, a minute
    python benchmarks/ingest.py --scales 0.1 1             # Amazon's size: 1.04 M nodes, 9.4 M edges, 3 GB of text
    python benchmarks/ingest.py --flavour mag --scales 0.01 0.1

For every stage and scale: seconds, CPU seconds of all threads, peak of resident memory, and the bytes of what it makes
(file, text, arrays, CSV files), per node and per edge. Then how they grow: the exponent x in ``size ** x`` between each
scale and the next, where size is nodes plus edges; 1 is linear. For memory it is that of the peak beyond what imports
take.

The files are made up (see ``datasets.sources.stark.synthetic``). Each stage is a process of its own, so its peak is its
own; ``generate`` is not part of the job. Peaks are read from ``/proc``, so this needs Linux.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

STAGES = ("generate", "ingest", "documents", "graph", "neo4j export")


@dataclass(frozen=True)
class Measured:
    """One stage at one scale.

    Attributes:
        seconds, cpu: of the stage without imports; ``cpu`` of all threads.
        base, peak: resident megabytes before it began, and at most.
        size: bytes of what it made.
    """

    seconds: float
    cpu: float
    base: float
    peak: float
    size: int


def main() -> None:
    """Run all stages at every scale, print one line each, and how they grow."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scales", type=float, nargs="+", default=[0.02, 0.1])
    parser.add_argument("--flavour", choices=["amazon", "mag", "prime"], default="amazon")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where files are written; default: a temporary folder")
    parser.add_argument("--json", type=Path, help="file for the numbers as JSON")
    args = parser.parse_args()
    measured: list[dict[str, Measured]] = []
    counts: list[dict[str, int]] = []
    for scale in sorted(args.scales):
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            stages = {}
            for stage in STAGES:
                stages[stage] = _in_own_process(stage, Path(folder), args.flavour, scale, args.seed)
                if stage == "ingest":
                    counts.append(_counts(Path(folder)))
            _print_scale(scale, counts[-1], stages)
            measured.append(stages)
    for smaller, larger in zip(range(len(counts) - 1), range(1, len(counts)), strict=True):
        _print_growth(counts[smaller], measured[smaller], counts[larger], measured[larger])
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if args.json:
        runs = [
            {**count, "stages": {name: asdict(found) for name, found in stages.items()}}
            for count, stages in zip(counts, measured, strict=True)
        ]
        args.json.write_text(json.dumps(runs, indent=2) + "\n")


def _print_scale(scale: float, counts: dict[str, int], stages: dict[str, Measured]) -> None:
    print(f"scale {scale:g}: {counts['nodes']:,} nodes, {counts['edges']:,} edges")
    print(f"  {'':12}  {'seconds':>8}  {'CPU s':>8}  {'peak MB':>8}  {'MB made':>9}  {'B/node':>7}  {'B/edge':>7}")
    for stage, found in stages.items():
        print(
            f"  {stage:12}  {found.seconds:8.2f}  {found.cpu:8.2f}  {found.peak:8,.0f}  {found.size / 1e6:9,.1f}"
            f"  {found.size / counts['nodes']:7,.0f}  {found.size / counts['edges']:7,.0f}",
            flush=True,
        )


def _print_growth(
    few: dict[str, int], small: dict[str, Measured], many: dict[str, int], large: dict[str, Measured]
) -> None:
    factor = sum(many.values()) / sum(few.values())
    print(f"growth exponents, {factor:.1f} times the nodes and edges (1 is linear)")
    print(f"  {'':12}  {'seconds':>8}  {'CPU s':>8}  {'memory':>8}  {'MB made':>9}")
    for stage, found in large.items():
        before = small[stage]
        pairs = [
            (found.seconds, before.seconds),
            (found.cpu, before.cpu),
            (found.peak - found.base, before.peak - before.base),
            (found.size, before.size),
        ]
        exponents = [math.log(max(a, 1e-9) / max(b, 1e-9)) / math.log(factor) for a, b in pairs]
        print("  {:12}  {:8.2f}  {:8.2f}  {:8.2f}  {:9.2f}".format(stage, *exponents))


def _counts(folder: Path) -> dict[str, int]:
    return dict(json.loads((folder / "counts.json").read_text()))


def _in_own_process(stage: str, folder: Path, flavour: str, scale: float, seed: int) -> Measured:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(sender, stage, folder, flavour, scale, seed))
    process.start()
    sender.close()
    try:
        return Measured(**receiver.recv())
    except EOFError:
        sys.exit(f"stage {stage} failed")
    finally:
        process.join()


def _run(sender: Connection, stage: str, folder: Path, flavour: str, scale: float, seed: int) -> None:
    from skb_pipeline.datasets.catalogue import get_spec
    from skb_pipeline.datasets.sources import open_source
    from skb_pipeline.datasets.sources.stark.synthetic import synthetic_stark
    from skb_pipeline.graph.memory.csr import CsrGraph
    from skb_pipeline.graph.neo4j.export import export_skb
    from skb_pipeline.plans.schema import GraphSchema
    from skb_pipeline.skb.documents import build_documents
    from skb_pipeline.skb.ingest import ingest
    from skb_pipeline.storage.duck import connect

    spec = get_spec(flavour)
    spec = spec.model_copy(
        update={"source": spec.source.model_copy(update={"args": {"flavour": flavour, "folder": str(folder)}})}
    )
    skb = folder / "skb.duckdb"
    base, begun, cpu = _resident("VmRSS"), time.perf_counter(), time.process_time()
    made: Any
    if stage == "generate":
        synthetic_stark(folder, flavour, scale, seed)  # type: ignore[arg-type]
    elif stage == "ingest":
        report = ingest(spec, open_source(spec), skb)
    else:
        with connect(skb, read_only=True) as con:
            if stage == "documents":
                made = build_documents(con, spec)
            elif stage == "graph":
                made = CsrGraph.from_skb(con)
            else:
                data = {"data_version": "synthetic", "identity": "synthetic"}
                export_skb(con, GraphSchema.from_spec(spec), folder / "export", dataset=flavour, data=data)
    seconds, cpu, peak = time.perf_counter() - begun, time.process_time() - cpu, _resident("VmHWM")
    if stage == "generate":
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    elif stage == "ingest":
        counts = {"nodes": report.nodes["stored"], "edges": report.edges["stored"]}
        (folder / "counts.json").write_text(json.dumps(counts))
        size = skb.stat().st_size
    elif stage == "documents":
        size = sum(len(text.encode()) for text in made["document"])
    elif stage == "graph":
        size = sum(array.nbytes for array in vars(made).values() if hasattr(array, "nbytes"))
    else:
        size = sum(path.stat().st_size for path in (folder / "export").iterdir())
    sender.send({"seconds": seconds, "cpu": cpu, "base": base, "peak": peak, "size": size})


def _resident(what: str) -> float:
    """Resident megabytes of this process now (``VmRSS``) or at most (``VmHWM``)."""
    # Not getrusage, whose peak begins with that of the process this one was started from.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(what))


if __name__ == "__main__":
    main()
