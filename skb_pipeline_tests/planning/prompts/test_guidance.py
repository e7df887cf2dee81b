"""Guidance that comes with the package, executed over small SKBs that hold what its examples speak of."""

from __future__ import annotations

import pytest

from skb_pipeline.datasets.catalogue import get_spec
from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.planning.prompts.checking import TOP, check_examples
from skb_pipeline.planning.prompts.guidance import Example, Guidance, Hint, Rule, builtin_guidance
from skb_pipeline.planning.prompts.prompt_set import PromptSet
from skb_pipeline.plans.plan import Plan, PlanStatus
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.plans.validation import validate
from skb_pipeline_tests.planning.prompts.small_skbs import Fact, NamedSkb

BRANDS, CATEGORIES, COLORS = ["Coleman", "Speedo", "Arena"], ["swim caps", "goggles"], ["black", "white"]
PRODUCTS = {
    "Coleman Northern Nova Lantern": "Propane lantern. Lights a whole campsite, and two batteries last for a weekend.",
    "Speedo Silicone Solid": "A cap for swimmers.",
    "Speedo Vanquisher": "Goggles with an anti-fog coating.",
    "Arena Classic Silicone": "A cap for swimmers.",
    "Speedo Team Cap White": "A cap for swimmers.",
    "Coleman Sundome 4-Person Tent": "A dome with room for four.",
    "Tarp Under the Sundome": "A footprint that keeps the floor of your tent dry.",
    "Tent Stakes": "Steel stakes, bought with most tents.",
    "Windburner": "A light stove that boils water quickly on a windy mountain.",
    "Pellet Grill": "A heavy grill for the yard.",
    **{f"Coleman Spare Part {i}": "A spare part." for i in range(14)},
}
AMAZON_FACTS: list[Fact] = [
    ("Coleman Northern Nova Lantern", "has_brand", "Coleman"),
    ("Coleman Sundome 4-Person Tent", "has_brand", "Coleman"),
    *((f"Coleman Spare Part {i}", "has_brand", "Coleman") for i in range(14)),
    *((name, "has_brand", "Speedo") for name in PRODUCTS if name.startswith("Speedo")),
    ("Arena Classic Silicone", "has_brand", "Arena"),
    *((name, "has_category", "swim caps") for name in ("Speedo Silicone Solid", "Speedo Team Cap White")),
    ("Arena Classic Silicone", "has_category", "swim caps"),
    ("Speedo Vanquisher", "has_category", "goggles"),
    *((name, "has_color", "black") for name in ("Speedo Silicone Solid", "Speedo Vanquisher")),
    ("Arena Classic Silicone", "has_color", "black"),
    ("Speedo Team Cap White", "has_color", "white"),
    ("Coleman Sundome 4-Person Tent", "also_buy", "Tarp Under the Sundome"),
    *(("Coleman Sundome 4-Person Tent", "also_buy", f"Coleman Spare Part {i}") for i in range(12)),
    ("Tent Stakes", "also_buy", "Coleman Sundome 4-Person Tent"),
    ("Coleman Sundome 4-Person Tent", "also_view", "Pellet Grill"),
]  # fmt: skip
AMAZON_ANSWERS = ["Coleman Northern Nova Lantern", "Tarp Under the Sundome", "Speedo Silicone Solid", "Windburner"]

PRIME_NAMES = {
    "drug": ["Propranolol", "Methimazole", "Lisinopril", "Enalapril", "Warfarin", "Naproxen", "Rosiglitazone",
             "Phenytoin", "Carbamazepine", "Sumatriptan", "Metformin", "Glimepiride", "Digoxin", "Verapamil",
             "Omeprazole", "Aspirin", "Insulin", *(f"Cough drug {i}" for i in range(14))],
    "disease": ["pulmonary emphysema", "gout", "cirrhosis of liver", "cluster headache syndrome",
                "coronary artery disease", "type 2 diabetes mellitus", "ovarian cancer", "asthma"],
    "gene/protein": ["SERPINA1", "BAAT", "ALB", "GFAP", "CATSPER1", "TPO", "PPARG", "SLC22A2", "EGFR", "GRB2", "ABCB1",
                     "ATP4A", "PRM1", "HK2", "BRCA1", "MSH2", "BRCA2", "TP53", "MDM2", "UBE3A"],
    "anatomy": ["liver", "cerebellum", "blood", "testis", "thyroid gland", "kidney", "small intestine"],
    "effect/phenotype": ["Cough", "Gingival overgrowth", "Lactic acidosis", "Nausea"],
    "molecular_function": ["nuclear receptor activity", "damaged DNA binding"],
    "pathway": ["Signaling by EGFR", "Glycolysis", "Glucose metabolism", "Metabolism"],
    "cellular_component": ["apical plasma membrane", "nucleolus"],
    "biological_process": ["spermatogenesis", "protein ubiquitination"],
}  # fmt: skip
PRIME_FACTS: list[Fact] = [
    ("Propranolol", "contraindication", "pulmonary emphysema"), ("Propranolol", "contraindication", "gout"),
    ("SERPINA1", "associated with", "pulmonary emphysema"), ("SERPINA1", "associated with", "cirrhosis of liver"),
    ("BAAT", "expression present", "liver"), ("BAAT", "expression absent", "cerebellum"),
    ("ALB", "expression present", "liver"), ("GFAP", "expression absent", "liver"),
    ("GFAP", "expression present", "cerebellum"),
    ("CATSPER1", "expression absent", "blood"), ("CATSPER1", "expression present", "testis"),
    ("ALB", "expression present", "blood"), ("PRM1", "expression present", "testis"),
    ("TPO", "expression present", "thyroid gland"), ("Methimazole", "target", "TPO"),
    ("Aspirin", "target", "ALB"),
    ("Lisinopril", "side effect", "Cough"), ("Enalapril", "side effect", "Cough"),
    *((f"Cough drug {i}", "side effect", "Cough") for i in range(14)),
    ("Warfarin", "carrier", "ALB"), ("Naproxen", "carrier", "ALB"), ("Insulin", "carrier", "SERPINA1"),
    ("PPARG", "interacts with", "nuclear receptor activity"), ("Rosiglitazone", "target", "PPARG"),
    ("Phenytoin", "side effect", "Gingival overgrowth"), ("Phenytoin", "synergistic interaction", "Carbamazepine"),
    ("Sumatriptan", "indication", "cluster headache syndrome"),
    ("Sumatriptan", "contraindication", "coronary artery disease"),
    ("Metformin", "transporter", "SLC22A2"), ("Metformin", "side effect", "Lactic acidosis"),
    ("Insulin", "side effect", "Nausea"),
    ("EGFR", "interacts with", "Signaling by EGFR"), ("EGFR", "ppi", "GRB2"),
    ("Digoxin", "synergistic interaction", "Verapamil"), ("Verapamil", "transporter", "ABCB1"),
    ("SLC22A2", "expression present", "kidney"),
    ("Omeprazole", "target", "ATP4A"), ("ATP4A", "interacts with", "apical plasma membrane"),
    ("PRM1", "interacts with", "spermatogenesis"), ("PRM1", "expression absent", "small intestine"),
    ("Metformin", "indication", "type 2 diabetes mellitus"), ("Glimepiride", "indication", "type 2 diabetes mellitus"),
    ("Metformin", "synergistic interaction", "Glimepiride"), ("Insulin", "indication", "type 2 diabetes mellitus"),
    ("Metformin", "synergistic interaction", "Aspirin"),
    ("HK2", "interacts with", "Glycolysis"), ("HK2", "interacts with", "Glucose metabolism"),
    ("HK2", "interacts with", "Metabolism"), ("Glucose metabolism", "parent-child", "Glycolysis"),
    ("BRCA1", "associated with", "ovarian cancer"), ("MSH2", "associated with", "ovarian cancer"),
    ("BRCA2", "associated with", "ovarian cancer"), ("MSH2", "interacts with", "damaged DNA binding"),
    ("TP53", "interacts with", "damaged DNA binding"),
    ("TP53", "ppi", "MDM2"), ("TP53", "ppi", "UBE3A"), ("MDM2", "interacts with", "protein ubiquitination"),
    ("UBE3A", "interacts with", "protein ubiquitination"), ("MDM2", "interacts with", "nucleolus"),
]  # fmt: skip
PRIME_TEXTS = {"Enalapril": {"details": {"indication": "A medicine against high blood pressure."}}}
PRIME_ANSWERS = {  # one per example, with nodes that would be found if a hop were missing or went elsewhere
    "pulmonary emphysema": ["gout", "cirrhosis of liver"], "BAAT": ["ALB", "GFAP"], "CATSPER1": ["ALB", "PRM1"],
    "Methimazole": ["Aspirin"], "Enalapril": ["Phenytoin"], "Naproxen": ["Insulin"], "Rosiglitazone": ["Methimazole"],
    "Carbamazepine": ["Glimepiride"], "coronary artery disease": ["gout"], "Lactic acidosis": ["Nausea"],
    "GRB2": ["EGFR"], "ABCB1": ["SLC22A2"], "kidney": ["liver"], "apical plasma membrane": ["nucleolus"],
    "small intestine": ["testis"], "Glimepiride": ["Insulin", "Aspirin"], "Glucose metabolism": ["Metabolism"],
    "MSH2": ["BRCA2", "TP53"], "MDM2": ["UBE3A"],
}  # fmt: skip

MAG_NAMES = {
    "author": ["Ada Lovelace", "Alan Turing", "Grace Hopper"],
    "institution": ["Bletchley College"],
    "field_of_study": ["Cryptanalysis", "Botany"],
    "paper": ["On Notes", "On Numbers", "On Leaves", "On Engines", "On Debugging"],
}
WRITES, TOPIC = "author___writes___paper", "paper___has_topic___field_of_study"
MAG_FACTS: list[Fact] = [
    ("Alan Turing", "author___affiliated_with___institution", "Bletchley College"),
    *(("Alan Turing", WRITES, title) for title in ("On Numbers", "On Leaves", "On Engines")),
    ("Ada Lovelace", WRITES, "On Notes"),
    ("Ada Lovelace", WRITES, "On Engines"),
    ("Grace Hopper", WRITES, "On Debugging"),
    *((title, TOPIC, "Cryptanalysis") for title in ("On Numbers", "On Engines", "On Debugging")),
    ("On Leaves", TOPIC, "Botany"),
    ("On Debugging", "paper___cites___paper", "On Numbers"),
]
MENTIONS = {
    "AUTHOR": "Ada Lovelace",
    "TITLE": "On Numbers",
    "FIELD": "Cryptanalysis",
    "INSTITUTION": "Bletchley College",
}
MAG_ANSWERS = {
    "author-paper": {"On Notes", "On Engines"},
    "paper-paper": {"On Debugging"},
    "field-paper": {"On Numbers", "On Engines", "On Debugging"},
    "institution-author-paper": {"On Numbers", "On Leaves", "On Engines"},
    "paper-author-paper": {"On Leaves", "On Engines"},
    "paper-author-paper and paper-field-paper": {"On Engines"},
    "institution-author-paper and field-paper": {"On Numbers", "On Engines"},
}


@pytest.fixture(scope="module")
def amazon(tmp_path_factory: pytest.TempPathFactory) -> NamedSkb:
    names = {"product": list(PRODUCTS), "brand": BRANDS, "category": CATEGORIES, "color": COLORS}
    texts = {name: {"description": [text]} for name, text in PRODUCTS.items()}
    path = tmp_path_factory.mktemp("amazon") / "skb.duckdb"
    return NamedSkb.of_facts(get_spec("amazon"), names, AMAZON_FACTS, texts, path)


@pytest.fixture(scope="module")
def prime(tmp_path_factory: pytest.TempPathFactory) -> NamedSkb:
    path = tmp_path_factory.mktemp("prime") / "skb.duckdb"
    return NamedSkb.of_facts(get_spec("prime"), PRIME_NAMES, PRIME_FACTS, PRIME_TEXTS, path)


@pytest.fixture(scope="module")
def mag(tmp_path_factory: pytest.TempPathFactory) -> NamedSkb:
    path = tmp_path_factory.mktemp("mag") / "skb.duckdb"
    return NamedSkb.of_facts(get_spec("mag"), MAG_NAMES, MAG_FACTS, {}, path)


def test_prime_has_nineteen_examples_that_find_their_answer(prime: NamedSkb) -> None:
    examples = builtin_guidance("prime").examples
    assert len(examples) == len(PRIME_ANSWERS) == 19
    for example, (answer, others) in zip(examples, PRIME_ANSWERS.items(), strict=True):
        found = prime.answers(validate(example.plan, prime.schema))
        assert answer in found[:TOP], (example.question, found)
        assert not set(others) & set(found), (example.question, found)


def test_prime_text_ranks_among_many_answers(prime: NamedSkb) -> None:
    example = next(e for e in builtin_guidance("prime").examples if "lisinopril" in e.question)
    found = prime.answers(validate(example.plan, prime.schema))
    assert len(found) > TOP
    assert found[0] == "Enalapril"


def test_amazon_has_one_example_per_mode_that_finds_its_answer(amazon: NamedSkb) -> None:
    examples = builtin_guidance("amazon").examples
    modes = [example.plan.retrieval_mode for example in examples]
    assert modes == ["graph_filter_doc", "graph_expand", "graph_strict", "doc_search", "skip"]
    for example, answer in zip(examples, AMAZON_ANSWERS, strict=False):
        found = amazon.answers(validate(example.plan, amazon.schema))
        assert answer in found[:TOP], (example.question, found)
    strict = amazon.answers(validate(examples[2].plan, amazon.schema))
    assert strict == ["Speedo Silicone Solid"]
    expanded = amazon.answers(validate(examples[1].plan, amazon.schema))
    assert {"Tent Stakes", "Tarp Under the Sundome"} < set(expanded)
    assert "Pellet Grill" not in expanded


def test_mag_has_seven_paths_that_find_their_papers(mag: NamedSkb) -> None:
    hints = builtin_guidance("mag").hints
    assert [hint.path for hint in hints] == list(MAG_ANSWERS)
    for hint in hints:
        anchors = [anchor.model_copy(update={"text": MENTIONS[anchor.text]}) for anchor in hint.skeleton.anchors]
        checked = validate(hint.skeleton.model_copy(update={"anchors": anchors}), mag.schema)
        assert set(mag.answers(checked)) == MAG_ANSWERS[hint.path], hint.path


@pytest.mark.parametrize("name", ["amazon", "mag", "prime"])
def test_builtin_guidance_fits_its_spec_and_is_stored_whole(name) -> None:
    guidance = builtin_guidance(name)
    schema = GraphSchema.from_spec(get_spec(name))
    for hint in guidance.hints:
        assert validate(hint.skeleton, schema).status is PlanStatus.VALID
    assert Guidance.from_json(guidance.to_json()) == guidance


@pytest.mark.parametrize("name", ["amazon", "prime"])
def test_all_builtin_examples_are_kept(name, amazon, prime) -> None:
    skb = {"amazon": amazon, "prime": prime}[name]
    checked = check_examples(builtin_guidance(name), skb.schema, skb.run)
    assert checked.kept == builtin_guidance(name)
    assert checked.faults == ()


def test_risk_levels_follow_the_criteria() -> None:
    """``aggressive`` needs a plan that leaves nothing to text, ``no_trade`` one without hops."""
    for name in ("amazon", "prime"):
        for example in builtin_guidance(name).examples:
            plan = example.plan
            if plan.risk_level == "aggressive":
                assert plan.hops
                assert not plan.target.relevance_text, example.question
            assert (plan.risk_level == "no_trade") == (not plan.hops), example.question


def test_unknown_builtin() -> None:
    with pytest.raises(ValueError, match="amazon, mag, prime"):
        builtin_guidance("hpo")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "content",
    [
        {"name": "x", "tips": []},
        {"name": "x", "examples": [{"question": "q", "plan": {"anchors": "none"}}]},
        {"name": "x", "rules": [{"text": "t", "needs": "luck"}]},
        {},
    ],
)
def test_wrong_guidance_is_refused(content) -> None:
    with pytest.raises(ValueError, match="validation error"):
        Guidance.from_json(content)


def _plan(brand: str, **changes: object) -> Plan:
    plan = {
        "anchors": [{"var": "b", "text": brand, "label": "brand"}],
        "hops": [{"from": "b", "rel": "has_brand", "to_var": "T", "to_label": "product"}],
    }
    return Plan.model_validate({**plan, **changes})


def test_examples_that_do_not_fit_are_left_out_with_the_reason(amazon: NamedSkb) -> None:
    wrong_hop = [{"from": "b", "rel": "made_by", "to_var": "T", "to_label": "product"}]
    loose = [*_plan("Arena").model_dump()["anchors"], {"var": "c", "text": "goggles", "label": "category"}]
    guidance = Guidance(
        "mixed",
        hints=(Hint("fits", "always", _plan("BRAND")), Hint("does not", "never", _plan("BRAND", hops=wrong_hop))),
        rules=(Rule("a rule"),),
        examples=(
            Example("fits", _plan("Arena")),
            Example("finds nothing", _plan("Nonesuch")),
            Example("not valid", _plan("Arena", hops=wrong_hop)),
            Example("degraded", _plan("Arena", anchors=loose)),
            Example("searches for nothing", _plan("Arena", retrieval_mode="skip")),
        ),
    )
    checked = check_examples(guidance, amazon.schema, amazon.run)
    assert [example.question for example in checked.kept.examples] == ["fits", "searches for nothing"]
    assert [hint.path for hint in checked.kept.hints] == ["fits"]
    assert checked.kept.rules == guidance.rules
    reasons = dict(checked.faults)
    assert list(reasons) == ["does not", "finds nothing", "not valid", "degraded"]
    assert "finds nothing in this SKB" in reasons["finds nothing"]
    assert "'made_by' is not a known relation" in reasons["not valid"]
    assert "degraded" in reasons["degraded"]
    assert "anchors[1]" in reasons["degraded"]


def test_guidance_for_another_schema_leaves_nothing_behind() -> None:
    """Guidance that somebody sets for a dataset with other names does no harm: all of it is left out."""
    schema = GraphSchema.from_spec(get_spec("demo"))
    checked = check_examples(builtin_guidance("mag"), schema, lambda plans: pytest.fail("there is nothing to run"))
    assert checked.kept == Guidance("mag")
    assert [what for what, _ in checked.faults] == [*MAG_ANSWERS, "rules"]


def _with_plans(spec: DatasetSpec, **options: object) -> DatasetSpec:
    return spec.model_copy(update={"plans": spec.plans.model_copy(update=options)})


def test_what_needs_an_option_is_shown_only_with_it() -> None:
    guidance = builtin_guidance("amazon")
    off, on = (PromptSet(_with_plans(get_spec("amazon"), retrieval_modes=mode), guidance) for mode in (False, True))
    text_off, text_on = (prompts.messages("q")[0].content for prompts in (off, on))
    assert "doc_search" not in text_off
    assert "graph_strict" not in text_off
    assert '"retrieval_mode"' not in text_off
    assert text_off.count("\nPlan: ") == 3
    assert len(off.left_out) == 5
    assert text_on.count("\nPlan: ") == 5
    assert on.left_out == ()
    assert off.version != on.version
