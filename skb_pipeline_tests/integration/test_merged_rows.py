"""Rows of one id that differ: `run` says so, whether the store was kept or reused."""

from pathlib import Path

import yaml
from click.testing import CliRunner

from skb_pipeline.cli import cli
from skb_pipeline_tests.toy import toy_spec


def test_a_run_warns_of_fields_in_conflict(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "p.csv").write_text("id,title,price\n1,Tent,90\n2,Stove,40\n2,Stove (gas),45\n")
    (folder / "._p.csv").write_bytes(b"\x00\x05\x16\x07")
    (folder / "p0.csv").write_bytes(b"")
    (folder / "e.csv").write_text("a,b\n1,2\n")
    args = {
        "folder": str(folder),
        "nodes": [{"files": "*p*.csv", "id": "id", "type_value": "product",
                   "fields": {"title": "title", "price": "price"}}],
        "edges": [{"files": "e.csv", "head": "a", "tail": "b", "relation_value": "also_buy"}],
    }  # fmt: skip
    spec = toy_spec(name="shop", source={"adapter": "tables", "args": args})
    (home / "catalogue" / "shop.yaml").write_text(
        yaml.safe_dump(spec.model_dump(mode="json", exclude_defaults=True), sort_keys=False)
    )
    for kept in (False, True):
        result = CliRunner().invoke(cli, ["run", "--dataset", "shop", "--to", "skb/store"])
        assert result.exit_code == 0, result.output
        (line,) = (line for line in result.stderr.splitlines() if "rows of one id" in line)
        assert line == "Warning about skb/store: rows of one id agree: no; product.price: 1, product.title: 1"
        assert ("all 2 artefacts reused" in result.stderr) == kept
