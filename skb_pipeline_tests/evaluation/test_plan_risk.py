import pandas as pd
import pytest

from skb_pipeline.evaluation.plan_risk import risk_markdown, risk_plot, risk_table

ROWS = [
    # risk level, executed, bucket, has_answer
    ("normal", True, "1-10", True),
    ("normal", True, "1-10", False),
    ("normal", True, None, False),
    ("normal", False, None, False),
    ("aggressive", True, ">500", True),
    ("no_trade", False, "1-10", False),  # whatever a fallback search found, no plan was executed
]


@pytest.fixture
def table() -> pd.DataFrame:
    columns = ["risk_level", "executed", "bucket", "has_answer"]
    judged = pd.DataFrame(ROWS, columns=columns).assign(split="val", asked=True)
    some = judged.assign(asked=[i >= 4 for i in range(len(judged))])
    return risk_table({"rules": judged, "openai": some})


def test_cells(table: pd.DataFrame) -> None:
    rules = table[table["engine"] == "rules"].set_index(["risk_level", "bucket"])
    assert rules["questions"].to_dict() == {
        ("no_trade", "not executed"): 1,
        ("normal", "1-10"): 2,
        ("normal", "none"): 1,
        ("normal", "not executed"): 1,
        ("aggressive", ">500"): 1,
    }
    assert rules.loc[("normal", "1-10"), ["share", "with_answer"]].tolist() == [0.5, 0.5]
    assert table.groupby(["engine", "risk_level"])["share"].sum().tolist() == pytest.approx([1.0] * 5)


def test_shown(table: pd.DataFrame) -> None:
    lines = risk_markdown(table, split="val").splitlines()
    assert [line.split(" | ")[:3] for line in lines[2:]] == [
        ["| openai", r"no\_trade", "1"],
        ["| openai", "aggressive", "1"],
        ["| rules", r"no\_trade", "1"],
        ["| rules", "normal", "4"],
        ["| rules", "aggressive", "1"],
    ]
    assert "2 (50%)" in lines[5]
    image = risk_plot(table, split="val")
    assert image.startswith(b"\x89PNG")
    assert len(image) < 40_000
    assert risk_plot(table, split="test").startswith(b"\x89PNG")  # a split without questions


def test_nothing_was_asked() -> None:
    judged = pd.DataFrame(ROWS, columns=["risk_level", "executed", "bucket", "has_answer"])
    table = risk_table({"openai": judged.assign(split="val", asked=False)})
    assert list(table) == ["engine", "split", "risk_level", "bucket", "questions", "share", "with_answer"]
    assert table.empty
    assert risk_markdown(table, split="val").count("\n") == 1
