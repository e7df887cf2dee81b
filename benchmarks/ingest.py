"""From STaRK's files to an SKB, its documents and its in-memory graph: seconds, peak memory, bytes, and how they grow.

    python benchmarks/ingest.py                            # a minute
    python benchmarks/ingest.py --scale 1                  # Amazon's size: 1.04 M nodes, 9.4 M edges, 3 GB of text
    python benchmarks/ingest.py --flavour mag --scale 0.1

The files are made up (see ``datasets.sources.stark.synthetic``). Everything is done at a tenth of the scale and at the
scale itself. Each stage is a process of its own, so its peak is its own; that of ``generate`` is not part of the job.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

STAGES = ("generate", "ingest", "documents", "graph")


def main() -> None:
    """Run all stages at both scales and print one line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.05)
    parser.add_argument("--flavour", choices=["amazon", "mag", "prime"], default="amazon")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where files are written; default: a temporary folder")
    args = parser.parse_args()
    results: dict[str, list[dict[str, Any]]] = {stage: [] for stage in STAGES}
    print(f"{'scale':>7}  {'stage':9}  {'seconds':>8}  {'peak MB':>8}  result")
    for scale in (args.scale / 10, args.scale):
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            for stage in STAGES:
                found = _in_own_process(stage, Path(folder), args.flavour, scale, args.seed)
                results[stage].append(found)
                told = ", ".join(f"{key} {value:,.1f}".removesuffix(".0") for key, value in found["result"].items())
                print(f"{scale:7g}  {stage:9}  {found['seconds']:8.1f}  {found['peak']:8,.0f}  {told}", flush=True)
    for stage, (small, large) in results.items():
        print(f"growth, 10 times the data: {stage}: {large['seconds'] / small['seconds']:.1f} times the time, "
              f"{large['peak'] / small['peak']:.1f} times the memory")  # fmt: skip


def _in_own_process(stage: str, folder: Path, flavour: str, scale: float, seed: int) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(sender, stage, folder, flavour, scale, seed))
    process.start()
    sender.close()
    try:
        return dict(receiver.recv())
    except EOFError:
        sys.exit(f"stage {stage} failed")
    finally:
        process.join()


def _run(sender: Connection, stage: str, folder: Path, flavour: str, scale: float, seed: int) -> None:
    from skb_pipeline.datasets.catalogue import get_spec
    from skb_pipeline.datasets.sources import open_source
    from skb_pipeline.datasets.sources.stark.synthetic import synthetic_stark
    from skb_pipeline.graph.csr import CsrGraph
    from skb_pipeline.skb.documents import build_documents
    from skb_pipeline.skb.ingest import ingest
    from skb_pipeline.storage.duck import connect

    spec = get_spec(flavour)
    spec = spec.model_copy(
        update={"source": spec.source.model_copy(update={"args": {"flavour": flavour, "folder": str(folder)}})}
    )
    skb = folder / "skb.duckdb"
    started = time.perf_counter()
    result: dict[str, float] = {}
    if stage == "generate":
        synthetic_stark(folder, flavour, scale, seed)  # type: ignore[arg-type]
        result["MB"] = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
    elif stage == "ingest":
        report = ingest(spec, open_source(spec), skb)
        counts = {"nodes": report.nodes["stored"], "edges": report.edges["stored"]}
        (folder / "counts.json").write_text(json.dumps(counts))
        size = skb.stat().st_size
        result = {
            **counts,
            "file MB": size / 1e6,
            "bytes/node": size / counts["nodes"],
            "bytes/edge": size / counts["edges"],
        }
    else:
        counts = json.loads((folder / "counts.json").read_text())
        with connect(skb, read_only=True) as con:
            if stage == "documents":
                documents = build_documents(con, spec)
                size = documents["document"].str.len().sum()
                result = {"documents": len(documents), "characters/document": size / len(documents)}
            else:
                size = sum(array.nbytes for array in vars(CsrGraph.from_skb(con)).values() if hasattr(array, "nbytes"))
                result = {"MB": size / 1e6, "bytes/node": size / counts["nodes"], "bytes/edge": size / counts["edges"]}
    seconds = time.perf_counter() - started
    sender.send(
        {"seconds": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "result": result}
    )


if __name__ == "__main__":
    main()
