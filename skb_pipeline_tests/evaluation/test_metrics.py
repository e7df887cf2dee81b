"""Definitions of the four metrics, their counts, and equality with two other libraries."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skb_pipeline.evaluation.metrics import CONTRACT, METRICS, evaluate_ranking, query_metrics
from skb_pipeline_tests.evaluation.cases import queries_of, random_case, ranking_of
from skb_pipeline_tests.examples import examples


def scores(nodes: list[int], answers: list[int]) -> dict[str, float]:
    frame = query_metrics(ranking_of({"q": nodes}), queries_of({"q": answers}))
    return frame.loc[0, list(METRICS)].to_dict()


def test_values_of_a_small_case() -> None:
    frame = query_metrics(ranking_of({"a": [9, 3, 8, 1], "b": [1, 2]}), queries_of({"a": [1, 3, 77], "b": [1, 1, 2]}))
    assert frame.columns.tolist() == ["query_id", "split", *METRICS, "n_answers", "n_hits_listed"]
    assert frame.to_numpy().tolist() == [
        ["a", "test", 0.0, 1.0, 2 / 3, 0.5, 3, 2],
        ["b", "test", 1.0, 1.0, 1.0, 1.0, 2, 2],
    ]


def test_cuts_fall_exactly_after_the_fifth_and_the_twentieth() -> None:
    nodes = list(range(100, 130))
    assert scores(nodes, [104])["hit@5"] == 1
    assert scores(nodes, [105])["hit@5"] == 0
    assert scores(nodes, [119, 120]) == {"hit@1": 0, "hit@5": 0, "recall@20": 0.5, "mrr": 1 / 20}
    assert scores(nodes, [129])["mrr"] == pytest.approx(1 / 30)


def test_thirty_answers_with_the_first_twenty_right() -> None:
    assert scores(list(range(20)), list(range(30)))["recall@20"] == pytest.approx(0.667, abs=5e-4)


def test_a_repeated_node_counts_once_and_is_reported() -> None:
    queries = queries_of({"fine": [1], "q": [5, 7]})
    frame, report = evaluate_ranking(ranking_of({"fine": [1, 2], "q": [5, 5, 5, 9]}), queries)
    assert frame.loc[1, "recall@20"] == 0.5
    assert (report.duplicate_rows, report.duplicate_example, report.depth) == (2, "q", 2)


def test_a_node_behind_repetitions_moves_up() -> None:
    assert scores([5, 5, 5, 9], [9])["mrr"] == 0.5


def test_a_ranking_appended_to_itself_is_the_same_ranking_with_duplicates() -> None:
    ranking, queries = ranking_of({"a": [3, 1, 2], "b": [4]}), queries_of({"a": [2], "b": [4]})
    frame, report = evaluate_ranking(pd.concat([ranking, ranking]), queries)
    pd.testing.assert_frame_equal(frame, query_metrics(ranking, queries))
    assert report.duplicate_rows == 4


def test_answers_outside_the_skb_stay_in_the_denominator_and_are_counted() -> None:
    queries = queries_of({"q": [2, 57], "r": [57, 57, 90]})
    ranking = ranking_of({"q": [2, 3], "r": [1]})
    frame, report = evaluate_ranking(ranking, queries, known_node_ids=set(range(10)))
    assert frame["recall@20"].tolist() == [0.5, 0.0]
    assert frame["mrr"].tolist() == [1.0, 0.0]
    assert (report.absent_answers, report.absent_examples) == (3, (57, 90))
    assert evaluate_ranking(ranking, queries, known_node_ids=np.arange(10))[1] == report
    assert evaluate_ranking(ranking, queries)[1].absent_answers is None


def test_queries_without_answers_are_left_out_and_counted() -> None:
    queries = queries_of({"none": [], "null": None, "q": [1], "array": np.array([], dtype=np.int64)})
    frame, report = evaluate_ranking(ranking_of({"none": [1], "q": [1]}), queries)
    assert frame["query_id"].tolist() == ["q"]
    assert (report.queries, report.queries_without_answers) == (1, 3)


def test_no_query_has_an_answer() -> None:
    frame, report = evaluate_ranking(ranking_of({"q": [1]}), queries_of({"q": []}))
    assert len(frame) == 0
    assert frame.dtypes[list(METRICS)].eq("float64").all()
    assert report.depth == 0


def test_a_query_without_rows_scores_zero_and_is_counted() -> None:
    frame, report = evaluate_ranking(ranking_of({"b": [1, 4, 6]}), queries_of({"a": [1], "b": [1], "c": [2]}))
    assert frame["mrr"].tolist() == [0.0, 1.0, 0.0]
    assert (report.empty_rankings, report.depth) == (2, 3)
    nothing, report = evaluate_ranking(ranking_of({}), queries_of({"a": [1]}))
    assert nothing[list(METRICS)].to_numpy().tolist() == [[0, 0, 0, 0]]
    assert report.empty_rankings == 1


def test_an_answer_listed_for_the_query_before_is_not_taken_over() -> None:
    frame = query_metrics(
        ranking_of({"a": [7, 8, 9], "b": [1, 2], "c": [9]}), queries_of({"a": [9], "b": [9], "c": [8]})
    )
    assert frame["mrr"].tolist() == [1 / 3, 0.0, 0.0]


def test_rows_of_other_queries_are_ignored_and_counted() -> None:
    report = evaluate_ranking(ranking_of({"x": [1] * 3, "q": [1], "y": [2]}), queries_of({"q": [1]}))[1]
    assert (report.foreign_queries, report.duplicate_rows, report.depth) == (2, 0, 1)


def test_ids_far_apart_or_negative() -> None:
    far = 2**62
    frame = query_metrics(ranking_of({"a": [far, -5], "b": [3, far]}), queries_of({"a": [-5], "b": [far, -9]}))
    assert frame["mrr"].tolist() == [0.5, 0.5]
    assert frame["recall@20"].tolist() == [1.0, 0.5]


@pytest.mark.parametrize("ranks", [[1, 3], [0, 1], [1, 1], [2, 3]])
def test_ranks_with_gaps_or_ties_are_refused(ranks: list[int]) -> None:
    ranking = ranking_of({"ok": [1, 2], "q": [5, 6]}).assign(rank=[1, 2, *ranks])
    with pytest.raises(ValueError, match=r"query 'q'.*without gaps"):
        query_metrics(ranking, queries_of({"ok": [1], "q": [5]}))


def test_input_errors_name_the_culprit() -> None:
    ranking, queries = ranking_of({"q": [1]}), queries_of({"q": [1]})
    with pytest.raises(KeyError, match="ranking has no column rank"):
        query_metrics(ranking.drop(columns="rank"), queries)
    with pytest.raises(TypeError, match="'node_id' must hold integers"):
        query_metrics(ranking.assign(node_id=["1"]), queries)
    with pytest.raises(TypeError, match="query 'q'"):
        query_metrics(ranking, queries_of({"q": "[1, 2]"}))
    with pytest.raises(TypeError, match="query 'q'"):
        query_metrics(ranking, queries_of({"q": [1.5]}))
    with pytest.raises(ValueError, match="'q' occurs more than once"):
        query_metrics(ranking, pd.concat([queries, queries]))
    with pytest.raises(ValueError, match="'q' has no split"):
        query_metrics(ranking, queries.assign(split=None))


def test_the_contract_states_every_rule() -> None:
    for phrase in ("hit@k", "all distinct answers", "stored list", "depth 1,000", "depth 100", "left out", "absent"):
        assert phrase in CONTRACT


node = st.integers(0, 40)
cases = st.dictionaries(
    st.sampled_from("abcde"), st.tuples(st.lists(node, max_size=40), st.lists(node, max_size=35)), min_size=1
)


@settings(max_examples=examples(150))
@given(case=cases, seed=st.integers(0, 2**16))
def test_contract_on_any_input(case: dict[str, tuple[list[int], list[int]]], seed: int) -> None:
    """Against the definitions written out, with repeated nodes, and whatever the order of the rows."""
    ranking = ranking_of({query: nodes for query, (nodes, _) in case.items()})
    queries = queries_of({query: answers for query, (_, answers) in case.items()})
    frame, report = evaluate_ranking(ranking, queries)

    values = frame[list(METRICS)].to_numpy()
    assert ((values >= 0) & (values <= 1)).all()
    assert (frame["hit@1"] <= frame["hit@5"]).all()
    assert (frame["n_hits_listed"] <= frame["n_answers"]).all()
    assert report.duplicate_rows == sum(len(nodes) - len(set(nodes)) for nodes, _ in case.values())
    for row in frame.itertuples(index=False):
        nodes, answers = list(dict.fromkeys(case[row[0]][0])), set(case[row[0]][1])
        at = [rank for rank, listed in enumerate(nodes, start=1) if listed in answers]
        best = at[0] if at else np.inf
        recall = sum(rank <= 20 for rank in at) / len(answers)
        assert row[2:] == pytest.approx((int(best <= 1), int(best <= 5), recall, 1 / best, len(answers), len(at)))

    shuffled = ranking.sample(frac=1, random_state=seed)
    again, report_again = evaluate_ranking(shuffled, queries)
    pd.testing.assert_frame_equal(again, frame)
    assert report_again == report


@pytest.mark.deep  # ranx compiles its functions on the first call
@pytest.mark.parametrize("seed", [0, 1])
def test_equal_to_ranx(seed: int) -> None:
    """ranx refuses a run that lacks a query unless told to make it comparable; then such a query counts 0, as here."""
    ranx = pytest.importorskip("ranx")
    lists, answers = random_case(seed)
    frame = query_metrics(ranking_of(lists), queries_of(answers)).set_index("query_id")
    qrels = ranx.Qrels({query: {str(node): 1 for node in nodes} for query, nodes in answers.items()})
    run = ranx.Run(
        {query: {str(node): 1 / rank for rank, node in enumerate(nodes, 1)} for query, nodes in lists.items() if nodes}
    )
    names = {"hit@1": "hit_rate@1", "hit@5": "hit_rate@5", "recall@20": "recall@20", "mrr": "mrr"}
    ranx.evaluate(qrels, run, list(names.values()), make_comparable=True)
    for name, theirs in names.items():
        assert frame[name].to_dict() == pytest.approx(dict(run.scores[theirs])), name


@pytest.mark.parametrize("seed", [0, 1])
def test_equal_to_ir_measures(seed: int) -> None:
    """trec_eval through ir-measures: it sorts by score itself (ties by descending document id, none occur here).

    Per query it lists missing ones with 0, and its means count them, as ours do.
    """
    ir_measures = pytest.importorskip("ir_measures")
    lists, answers = random_case(seed)
    frame = query_metrics(ranking_of(lists), queries_of(answers)).set_index("query_id")
    qrels = [ir_measures.Qrel(query, str(node), 1) for query, nodes in answers.items() for node in nodes]
    run = [
        ir_measures.ScoredDoc(query, str(node), -float(rank))
        for query, nodes in lists.items()
        for rank, node in enumerate(nodes)
    ]
    names = {"hit@1": "Success@1", "hit@5": "Success@5", "recall@20": "R@20", "mrr": "RR"}
    measures = {name: ir_measures.parse_measure(theirs) for name, theirs in names.items()}
    found = list(ir_measures.iter_calc(list(measures.values()), qrels, run))
    means = ir_measures.calc_aggregate(list(measures.values()), qrels, run)
    for name, measure in measures.items():
        theirs = {value.query_id: value.value for value in found if value.measure == measure}
        assert frame[name].to_dict() == pytest.approx(theirs), name
        assert frame[name].mean() == pytest.approx(means[measure]), name
