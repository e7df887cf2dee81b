import json
import os
from pathlib import Path

import pytest
import yaml

from skb_pipeline.datasets.catalogue import UnknownDatasetError, get_spec, spec_files
from skb_pipeline.datasets.loading import SpecError, load_spec
from skb_pipeline.datasets.sources import open_source
from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline_tests.toy import toy_spec

GOOD = """\
name: mine
description: my shop
source: {adapter: hpo}
node_types:
  product:
    fields: {title: text, tags: texts}
    name_field: title
    document: [title, tags]
relations:
  - {name: also_buy, head: product, tail: product}
encoder: {model: some/model, revision: abc}
"""


def fault(tmp_path: Path, old: str, new: str) -> str:
    assert old in GOOD
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    return str(caught.value).replace(str(tmp_path) + "/", "")


def test_good_spec_loads_with_defaults(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(GOOD)
    spec = load_spec(tmp_path / "mine.yaml")
    assert spec.triples == [("product", "also_buy", "product")]
    assert spec.candidate_types == ["product"]
    assert (spec.lexical.k1, spec.lexical.b, spec.retrieval.depth) == (1.2, 0.75, 1000)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("description: my shop", "description: my shop\ncolour: red", "mine.yaml:3: colour: unknown key"),
        ("name_field: title", "name_field: titel", "mine.yaml:5: node_types.product: name_field 'titel'"),
        ("tags: texts}", "tags: wordlist}", "mine.yaml:6: node_types.product.fields.tags.shape"),
        ("tail: product}", "tail: brand}", "mine.yaml:1: (whole file): relations.0 ('also_buy'): type 'brand'"),
        ("name: mine", "name: ../../etc", "mine.yaml:1: name: dataset name '../../etc' is not allowed"),
        ("document: [title, tags]", "document: [tags]", "document must contain the name field 'title'"),
        ("description: my shop", "name: again", "mine.yaml:2: key 'name' is given twice"),
        ("description: my shop", "description: !!python/object/apply:os.getcwd []", "mine.yaml:2"),
        ("description: my shop", "description: [unclosed", "mine.yaml"),
        ("encoder: {model: some/model", "encoder: {batch_size: 0, model: some/model", "encoder.batch_size"),
    ],
)
def test_faults_name_file_line_and_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert message in fault(tmp_path, old, new)


def test_a_file_that_is_no_mapping(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("- a\n- b\n")
    with pytest.raises(SpecError, match=r"mine\.yaml:1: a spec is a mapping"):
        load_spec(tmp_path / "mine.yaml")


def test_phrasing_needs_its_slot_and_a_known_triple() -> None:
    phrasing = {"relation": "has_brand", "target": "product", "anchor": "brand", "forms": ["is by {x}"]}
    assert toy_spec(questions={"phrasings": [phrasing]}).questions.phrasings[0].forms == ["is by {x}"]
    for change, message in [({"forms": ["is by"]}, "exactly once"), ({"target": "brand"}, "no triple")]:
        with pytest.raises(ValueError, match=message):
            toy_spec(questions={"phrasings": [{**phrasing, **change}]})


def test_built_in_specs_are_valid() -> None:
    assert set(spec_files()) >= {"demo", "hpo"}
    for name in ("demo", "hpo"):
        spec = get_spec(name)
        assert open_source(spec)
        assert "2025-01-16" in (spec.citation or "")


def test_a_users_spec_joins_the_catalogue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SKB_CATALOGUE", str(tmp_path))
    (tmp_path / "mine.yaml").write_text(GOOD)
    assert get_spec("mine").description == "my shop"
    (tmp_path / "other.yaml").write_text(GOOD)
    with pytest.raises(SpecError, match=r"is 'mine' but the file is called 'other\.yaml'"):
        get_spec("other")
    with pytest.raises(UnknownDatasetError, match=r"there are: .*demo, hpo, .*mine, other"):
        get_spec("nothing")
    (tmp_path / "Bad Name.yaml").write_text(GOOD)
    assert "Bad Name" not in spec_files()
    assert "Bad Name.yaml is no dataset: dataset name 'Bad Name' is not allowed" in caplog.text


def test_adapter_arguments_are_checked() -> None:
    with pytest.raises(SpecError, match=r"source\.args: subtre: Extra inputs"):
        open_source(toy_spec(source={"adapter": "hpo", "args": {"subtre": "HP:1"}}))
    with pytest.raises(SpecError, match=r"'nope' is unknown; there are: hpo, stark, tables$"):
        open_source(toy_spec(source={"adapter": "nope"}))


def test_spec_survives_a_round_trip_through_yaml(tmp_path: Path) -> None:
    path = tmp_path / "demo.yaml"
    path.write_text(yaml.safe_dump(get_spec("demo").model_dump(mode="json", exclude_none=True), sort_keys=False))
    assert load_spec(path) == get_spec("demo")


def test_a_spec_survives_as_plain_values() -> None:
    for name in spec_files():
        spec = get_spec(name)
        again = DatasetSpec.model_validate(json.loads(json.dumps(spec.model_dump(mode="json"))))
        assert again.decides_as(spec)
        assert again == spec
        assert again.decides_as(spec.model_copy(update={"description": "other words", "version": "2"}))
        assert not again.decides_as(spec.model_copy(update={"systems": ["bm25"]}))


def test_a_file_is_read_as_it_stands_and_what_was_read_belongs_to_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD)
    before = path.stat()
    load_spec(path).source.args["subtree"] = "HP:0000001"
    assert load_spec(path).source.args == {}
    # Neither size nor time tell the two texts apart.
    path.write_text(GOOD.replace("product", "article"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert list(load_spec(path).node_types) == ["article"]
