"""From a number back to its source files, read from the manifests of the artefacts themselves: each artefact once."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from skb_pipeline.orchestration.differences import code_versions, leaves, shown
from skb_pipeline.storage.artifacts import (
    Artifact,
    ArtifactStore,
    ManifestMismatchError,
    Recipe,
    parse_input,
    stable_hash,
)
from skb_pipeline.text.sinks import markdown_link, markdown_table, markdown_text

SNAPSHOT = "catalog/snapshot"
_WIDTH = 118
_SHORT = 8


@dataclass(frozen=True)
class Made:
    """One artefact behind a number, as plain values.

    Attributes:
        asset: its key.
        data_version: of what was read of it.
        inputs: name of an input -> its version, as in a recipe.
        config: settings that decided it; of a snapshot also ``files``, name -> sha256.
        code, libraries: versions by module and distribution.
        seed: of everything random in it.
        run_id, created: who made it and when.
        sizes: of a snapshot, bytes by name of file.
        state: empty; ``replaced`` where there is a newer version; ``gone`` where nothing but the version is known.
    """

    asset: str
    data_version: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None
    run_id: str | None = None
    created: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    state: str = ""

    @classmethod
    def of(cls, artifact: Artifact, state: str = "") -> Made:
        """What a manifest tells."""
        manifest = artifact.manifest
        return cls(
            manifest["asset"], artifact.data_version, manifest["inputs"], manifest["config"],
            code_versions(manifest["code_version"]), manifest["libraries"], manifest["seed"],
            manifest["run_id"], manifest["created"], artifact.metadata.get("file_sizes", {}), state,
        )  # fmt: skip

    @classmethod
    def now(cls, recipe: Recipe, data_version: str, run_id: str, created: str) -> Made:
        """One that is being made."""
        return cls(
            recipe.asset, data_version, recipe.inputs, recipe.config, code_versions(recipe.code_version),
            recipe.libraries, recipe.seed, run_id, created,
        )  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """The fields as plain values."""
        return asdict(self)

    @property
    def parents(self) -> list[str]:
        """Keys of the assets it was made from."""
        return list(dict.fromkeys(parse_input(name)[0] for name in self.inputs))

    @property
    def settings(self) -> dict[str, Any]:
        """``config`` without files."""
        return {name: value for name, value in self.config.items() if name != "files"}


def trace_back(store: ArtifactStore, dataset: str, inputs: Mapping[str, str]) -> list[Made]:
    """Some inputs and all artefacts they were made from, directly or not: each once, after what it was made from.

    Args:
        inputs: name -> version, as a recipe has them.
    """
    found: dict[str, Made | None] = {}

    def visit(inputs: Mapping[str, str]) -> None:
        for name, version in inputs.items():
            asset, splits = parse_input(name)
            if asset in found:
                continue
            found[asset] = None
            made = _version(store, dataset, asset, splits, version)
            visit(made.inputs)
            del found[asset]  # after what it was made from
            found[asset] = made

    visit(inputs)
    return [made for made in found.values() if made is not None]


def _version(store: ArtifactStore, dataset: str, asset: str, splits: Sequence[str] | None, version: str) -> Made:
    for place, artifact in enumerate(store.versions(dataset, asset)):
        try:
            if artifact.version_of(splits) == version:
                return Made.of(artifact, "replaced" if place else "")
        except ManifestMismatchError:  # it does not know its rows by split
            continue
    return Made(asset, version, state="gone")


def behind(table: Artifact, store: ArtifactStore, system: str | None = None) -> list[Made]:
    """The artefacts behind a metric table, or behind the rows of one system in it; the table is the last."""
    made = Made.of(table)
    wanted = made.inputs
    if system is not None:
        own = f"evaluation/query_metrics_{system}"
        others = {name for name in wanted if name.startswith("evaluation/query_metrics_")} - {own}
        wanted = {name: version for name, version in wanted.items() if name not in others}
    return [*trace_back(store, str(table.manifest["dataset"]), wanted), replace(made, inputs=wanted)]


def files_of(made: Iterable[Made]) -> list[dict[str, Any]]:
    """``name``, ``sha256`` and ``bytes`` of each source file."""
    return [
        {"name": name, "sha256": digest, "bytes": one.sizes.get(name)}
        for one in made
        if one.asset == SNAPSHOT
        for name, digest in one.config.get("files", {}).items()
    ]


def lineage_text(made: Sequence[Made]) -> str:
    """A lineage for a terminal: files, artefacts, settings, libraries and code."""
    lines = ["source files"]
    lines += [f"  {one['name']}  {_size(one['bytes'])}  sha256 {one['sha256'][:16]}" for one in files_of(made)]
    lines += ["", "artefacts, each after those it was made from"]
    rows = [["", "asset", "data", "made", "run", "from"], *_rows(made)]
    widths = [max(len(row[i]) for row in rows) for i in range(6)]
    lines += ["  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += ["", "settings that decided them"]
    lines += [_wrapped(f"  {name}  ", text, 1) for name, text in _settings(made)]
    for what, versions in _versions(made):
        lines += ["", _wrapped(f"{what}  ", ", ".join(versions), 12)]
    return "\n".join(lines)


def lineage_markdown(made: Sequence[Made], dataset: str) -> str:
    """The same for the UI: assets and runs are links to their pages."""
    files = [(one["name"], _size(one["bytes"]), one["sha256"]) for one in files_of(made)]
    artefacts = [
        (
            number,
            markdown_link(one.asset, f"/assets/{one.asset}?view=partitions&partition={dataset}"),
            data,
            created,
            markdown_link(one.run_id[:_SHORT], f"/runs/{one.run_id}") if one.run_id else "–",
            parents,
        )
        for one, (number, _, data, created, _, parents) in zip(made, _rows(made), strict=True)
    ]
    tables = [
        markdown_table(("source file", "size", "sha256"), files),
        markdown_table(("", "asset", "data version", "made", "run", "from"), artefacts),
        markdown_table(("setting (of)", "value"), list(_settings(made))),
        *(f"**{what}:** {markdown_text(', '.join(told))}" for what, told in _versions(made)),
    ]
    return "\n\n".join(tables)


def _rows(made: Sequence[Made]) -> Iterator[list[str]]:
    numbers = {one.asset: str(place) for place, one in enumerate(made, start=1)}
    for one in made:
        parents = [numbers[parent] for parent in one.parents if parent in numbers]
        source = ", ".join(parents) or ("files" if one.asset == SNAPSHOT else "–")
        created = (one.created or "–")[:16].replace("T", " ")
        state = {"replaced": " (replaced since)", "gone": " (gone)"}.get(one.state, "")
        run = (one.run_id or "–")[:_SHORT]
        yield [numbers[one.asset], one.asset, one.data_version[:_SHORT], created, run, f"{source}{state}"]


def _settings(made: Sequence[Made]) -> Iterator[tuple[str, str]]:
    """Each setting once: its name with the numbers of the artefacts it decided, and its values."""
    users: dict[tuple[str, str], list[int]] = {}
    values: dict[tuple[str, str], Any] = {}
    for place, one in enumerate(made, start=1):
        for name, value in {**one.settings, **({} if one.seed is None else {"seed": one.seed})}.items():
            key = (name, stable_hash(value))
            users.setdefault(key, []).append(place)
            values[key] = value
    for (name, digest), places in users.items():
        told = sorted(leaves(values[name, digest]), key=lambda one: one[0].rpartition(".")[2] not in _FIRST)
        found = [f"{path}={shown(value)}" if path else shown(value) for path, value in told]
        yield f"{name} ({', '.join(map(str, places))})", _some(found, digest)


def _some(found: Sequence[str], digest: str) -> str:
    """As many values as one line takes; for the others stand their number and a digest of all."""
    text = ", ".join(found)
    if len(text) <= _LINE:
        return text
    taken = 0
    while len(", ".join(found[: taken + 1])) <= _LINE - 30:
        taken += 1
    return ", ".join([*found[:taken], f"… {len(found) - taken} values more, all: {digest[:_SHORT]}"])


_LINE = 88
_FIRST = ("adapter", "engine", "kind", "model", "content", "revision")
"""Values that are told before others: what they belong to has no other name."""


def _versions(made: Sequence[Made]) -> Iterator[tuple[str, list[str]]]:
    for what, of in (("libraries", [one.libraries for one in made]), ("code", [one.code for one in made])):
        told: dict[str, dict[str, None]] = {}
        for versions in of:
            for name, version in versions.items():
                if name != "asset":
                    told.setdefault(name, {})[version] = None
        yield what, [f"{name} {' and '.join(versions)}" for name, versions in sorted(told.items())]


def _wrapped(first: str, text: str, most: int) -> str:
    indent = " " * 4
    lines = textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=indent, max_lines=most, placeholder=" …"
    )
    return "\n".join(lines) if lines else first.rstrip()


def _size(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:.2f} MB" if size >= 1e4 else f"{size} bytes"
