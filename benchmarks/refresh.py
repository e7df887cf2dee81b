"""What a refresh costs when a share of the rows changed, beside a build from nothing of the same state.

The ontology's three files are copied; a share of the annotations and of the genes' rows is deleted, of others the
phenotype is changed, and as many definitions are edited. Each such row is an edge, and both its ends' documents tell of
it. With ``--entities`` it is a share of terms and diseases that changes or goes.

Printed: CPU seconds of the first build, of the refresh and of a run that finds nothing changed, with the ratio of the
second to the first; seconds per asset of the first build and of the refresh, the costliest first; texts encoded; and
whether the refreshed home equals a build from nothing (data versions of all artefacts, and the metric table).

    python benchmarks/refresh.py                       # a slice of 1,000 nodes
    python benchmarks/refresh.py --whole --entities --max-length 16
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from skb_pipeline.datasets.catalogue import spec_files
from skb_pipeline.datasets.sources.hpo import GENES, HPOA, OBO, HpoArgs, HpoSource
from skb_pipeline.storage.artifacts import ArtifactStore
from skb_pipeline_tests.live.built import differences

NAME = "changing"
_PHENOTYPE = re.compile(r"HP:\d{7}")


def write_spec(home: Path, files: Path, *, whole: bool, max_length: int) -> None:
    """The spec of the ontology, or of the slice of the demo, that reads the copied files."""
    spec = yaml.safe_load(spec_files()["hpo" if whole else "demo"].read_text())
    spec["name"] = NAME
    spec["source"].setdefault("args", {})["folder"] = str(files)
    spec["encoder"]["max_length"] = max_length
    (home / "catalogue").mkdir(parents=True, exist_ok=True)
    (home / "catalogue" / f"{NAME}.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))


def change(files: Path, share: float, seed: int = 3) -> dict[str, int]:
    """Change rows of the files; how many are deleted and changed."""
    draw = random.Random(seed)
    counts = {"deleted": 0, "changed": 0}
    for name in (HPOA, GENES):
        lines = (files / name).read_text().splitlines(keepends=True)
        known = sorted({found.group() for line in lines[100:5000] if (found := _PHENOTYPE.search(line))})
        kept = []
        for number, line in enumerate(lines):
            if number < 10 or draw.random() >= share:
                kept.append(line)
            elif draw.random() < 0.5:
                counts["deleted"] += 1
            else:
                counts["changed"] += 1
                kept.append(_PHENOTYPE.sub(draw.choice(known), line, count=1))
        (files / name).write_text("".join(kept))
    counts["changed"] += _edit_definitions(files, share, draw)
    return counts


def change_entities(files: Path, share: float, seed: int = 3) -> dict[str, int]:
    """Edit the definitions of a share of the terms, rename a share of the diseases by half, and delete the other half
    with all their rows; entities deleted and changed."""
    draw = random.Random(seed)
    counts = {"deleted": 0, "changed": 0}
    annotations = (files / HPOA).read_text().splitlines(keepends=True)
    diseases = sorted({line.split("\t")[0] for line in annotations if not line.startswith(("#", "database_id"))})
    chosen = draw.sample(diseases, round(share * len(diseases)))
    renamed, deleted = set(chosen[::2]), set(chosen[1::2])
    kept = []
    for line in annotations:
        disease, *others = line.split("\t")
        if disease in renamed:
            kept.append("\t".join([disease, f"{others[0]}, revised", *others[1:]]))
        elif disease not in deleted:
            kept.append(line)
    (files / HPOA).write_text("".join(kept))
    rows = (files / GENES).read_text().splitlines(keepends=True)
    (files / GENES).write_text("".join(line for line in rows if line.rstrip("\n").split("\t")[-1] not in deleted))
    counts["deleted"] += len(deleted)
    counts["changed"] += len(renamed) + _edit_definitions(files, share, draw)
    return counts


def _edit_definitions(files: Path, share: float, draw: random.Random) -> int:
    lines = (files / OBO).read_text().splitlines(keepends=True)
    edited = 0
    for number, line in enumerate(lines):
        if line.startswith('def: "') and draw.random() < share:
            lines[number] = line.replace('def: "', 'def: "Revised. ', 1)
            edited += 1
    (files / OBO).write_text("".join(lines))
    return edited


def run(home: Path) -> float:
    """One run of the whole job; CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "skb_pipeline.cli", "run", "--dataset", NAME]
    subprocess.run(command, env={**os.environ, "SKB_HOME": str(home)}, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def encoded(home: Path) -> dict[str, int]:
    """Texts encoded for the last versions of the indexes."""
    store = ArtifactStore(home / "store")
    keys = ("index/dense", "graph/anchors")
    return {key: int(store.require(NAME, key).metadata["texts encoded"]) for key in keys}


def seconds(home: Path) -> dict[str, float]:
    """Wall seconds that each current version took to make."""
    store = ArtifactStore(home / "store")
    return {key: float(made.manifest["seconds"]) for key, made in store.all_fitting(NAME).items()}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--whole", action="store_true", help="the whole ontology")
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--entities", action="store_true", help="change terms and diseases instead of single rows")
    parser.add_argument("--max-length", type=int, default=64)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home, files = Path(folder, "home"), Path(folder, "files")
        files.mkdir()
        for path in HpoSource(HpoArgs()).files():
            shutil.copy(path, files)
        write_spec(home, files, whole=args.whole, max_length=args.max_length)
        first = run(home)
        texts, took = encoded(home), seconds(home)
        changed = (change_entities if args.entities else change)(files, args.share)
        again = run(home)
        nothing = run(home)
        print(json.dumps({"changes": changed, "CPU s": [round(cpu, 1) for cpu in (first, again, nothing)],
                          "ratio": round(again / first, 3), "texts encoded": [texts, encoded(home)]}))  # fmt: skip
        for key, after in sorted(seconds(home).items(), key=lambda entry: -entry[1]):
            print(f"  {key}: {took[key]:.2f} s, then {after:.2f} s")
        print("against a build from nothing:", differences(home, NAME, Path(folder, "anew")) or "equal")


if __name__ == "__main__":
    main()
