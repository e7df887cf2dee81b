"""Files that somebody edits while they are read: no artefact says that it was made from something else."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from skb_pipeline.datasets.records import RawNode
from skb_pipeline.datasets.sources.tables.adapter import TablesSource
from skb_pipeline.orchestration.running import RunFailedError, materialise
from skb_pipeline.workspace import SKB_FILE, Workspace
from skb_pipeline_tests.live.shop import Shop

EDGES, NODES = TablesSource.edges, TablesSource.nodes


@pytest.fixture
def shop(home: Path, tmp_path: Path) -> Shop:
    shop = Shop.of(tmp_path / "shop", n=12)
    (home / "catalogue" / "shop.yaml").write_text(shop.spec())
    return shop


def text_of(product: str) -> str:
    with duckdb.connect(str(Workspace().store.require("shop", "skb/store").file(SKB_FILE)), read_only=True) as con:
        row = con.execute("SELECT fields->>'text' FROM nodes WHERE external_id = ?", [product]).fetchone()
    assert row is not None
    return str(row[0])


def test_a_run_starts_again_from_what_the_files_hold_then(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []

    def edited_meanwhile(source: TablesSource) -> object:
        reads.append(1)
        if len(reads) == 1:
            shop.edit("p3", "kites")  # the nodes were read already
        return EDGES(source)

    monkeypatch.setattr(TablesSource, "edges", edited_meanwhile)
    outcomes = {o.asset: o.reused for o in materialise("shop", to="skb/store")}
    assert outcomes == {"catalog/snapshot": False, "skb/store": False}
    assert len(reads) == 2
    assert text_of("p3") == "Now with kites, for those who know kites."


def test_what_is_swapped_and_swapped_back_is_not_kept_under_the_name_of_the_first(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = shop.products["p3"]
    materialise("shop", to="catalog/snapshot")

    def swapped(source: TablesSource) -> Iterator[RawNode]:
        shop.edit("p3", "kites")
        yield from NODES(source)
        shop.products["p3"] = first
        shop.write()

    monkeypatch.setattr(TablesSource, "nodes", swapped)
    told = r"skb/store: products\.csv changed while it was read, after catalog/snapshot looked at it"
    with pytest.raises(RunFailedError, match=told):
        materialise("shop", only="skb/store")
    monkeypatch.setattr(TablesSource, "nodes", NODES)
    materialise("shop", to="skb/store")
    assert text_of("p3") == first[1]
