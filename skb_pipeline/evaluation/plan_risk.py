"""Number of candidates by risk level: does a planner's trust in its plans go with how narrow they are and how often
they hold an answer? (GRASP, Figure 2.)"""

from __future__ import annotations

import io
from collections.abc import Mapping

import pandas as pd

from skb_pipeline.plans.plan import RiskLevel
from skb_pipeline.plans.results import BUCKETS
from skb_pipeline.text.sinks import markdown_table

NO_CANDIDATES, NOT_EXECUTED = "none", "not executed"
"""What stands for a bucket where a plan matched nothing, and where none was executed."""
COLUMNS = (*BUCKETS, NO_CANDIDATES, NOT_EXECUTED)


def risk_table(per_engine: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Questions per engine, split, risk level and bucket of n_cand; those that the planner was not asked do not count.

    Args:
        per_engine: engine -> frame of :func:`~skb_pipeline.evaluation.plan_quality.judge_plans`.

    Returns:
        ``engine, split, risk_level, bucket, questions`` (int64), ``share`` (of the engine's questions of that split and
        level), ``with_answer`` (share of the cell's questions that have an answer among the candidates); cells without
        questions are left out. Levels and buckets stand in their own order.
    """
    asked = [frame[frame["asked"]].assign(engine=engine) for engine, frame in per_engine.items()]
    judged = pd.concat(asked, ignore_index=True)
    bucket = judged["bucket"].where(judged["bucket"].notna(), NO_CANDIDATES).where(judged["executed"], NOT_EXECUTED)
    levels = pd.Categorical(judged["risk_level"], [level.value for level in RiskLevel], ordered=True)
    keyed = judged.assign(bucket=pd.Categorical(bucket, COLUMNS, ordered=True), risk_level=levels)
    keys = ["engine", "split", "risk_level"]
    cells = keyed.groupby([*keys, "bucket"], observed=True)["has_answer"].agg(["size", "mean"]).reset_index()
    cells = cells.rename(columns={"size": "questions", "mean": "with_answer"})
    cells["share"] = cells["questions"] / cells.groupby(keys, observed=True)["questions"].transform("sum")
    texts = cells.astype({"risk_level": str, "bucket": str, "with_answer": float})
    return texts[[*keys, "bucket", "questions", "share", "with_answer"]]


def risk_markdown(table: pd.DataFrame, *, split: str) -> str:
    """A Markdown table of one split: a row per engine and level, a column per bucket, each cell ``questions (share of
    the level)``."""
    part = table[table["split"] == split]
    lines = []
    for (engine, level), rows in part.groupby(["engine", "risk_level"], sort=False):
        cells = rows.set_index("bucket")
        shown = [
            f"{cells.at[name, 'questions']} ({cells.at[name, 'share']:.0%})" if name in cells.index else "–"
            for name in COLUMNS
        ]
        lines.append([engine, level, cells["questions"].sum(), *shown])
    return markdown_table(["engine", "risk level", "n", *COLUMNS], lines)


def risk_plot(table: pd.DataFrame, *, split: str) -> bytes:
    """The same as stacked bars, one per engine and risk level, as PNG (a few KB: it is shown inline)."""
    from matplotlib.figure import Figure

    part = table[table["split"] == split]
    bars = list(part.groupby(["engine", "risk_level"], sort=False))
    figure = Figure(figsize=(6, 1.0 + 0.32 * max(1, len(bars))), dpi=72, layout="constrained")
    axes = figure.subplots()
    shades = ["#08519c", "#3182bd", "#6baed6", "#bdd7e7", "#fd8d3c", "#bdbdbd", "#636363"]
    start = [0.0] * len(bars)
    for name, shade in zip(COLUMNS, shades, strict=True):
        shares = [float(rows.loc[rows["bucket"] == name, "share"].sum()) for _, rows in bars]
        axes.barh(range(len(bars)), shares, left=start, color=shade, label=name)
        start = [a + b for a, b in zip(start, shares, strict=True)]
    axes.set_yticks(range(len(bars)), [f"{e} · {level} ({int(rows['questions'].sum())})" for (e, level), rows in bars])
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel(f"share of {split} questions, by number of candidates")
    figure.legend(loc="outside upper center", ncols=len(COLUMNS), fontsize="x-small", frameon=False)
    image = io.BytesIO()
    figure.savefig(image, format="png")
    return image.getvalue()
