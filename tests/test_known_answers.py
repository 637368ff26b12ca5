"""Simulations give the answers that are known by formula, and the page of known answers has what they give."""

import pytest

from known_answers import ANSWERS, PAGE, KnownAnswer, collected_waf, page, row

_FIRST = {answer.subject: answer for answer in reversed(ANSWERS)}


def _case(answer: KnownAnswer) -> object:
    marks = () if _FIRST[answer.subject] is answer else (pytest.mark.slow,)
    return pytest.param(answer, marks=marks, id=f"{answer.subject}, {answer.case}")


@pytest.mark.parametrize("answer", [_case(answer) for answer in ANSWERS])
def test_a_simulation_gives_the_known_answer_and_the_page_has_it(answer: KnownAnswer) -> None:
    text, difference = row(answer)
    assert abs(difference) <= answer.within_pct, text
    assert text in PAGE.read_text(encoding="utf-8").splitlines(), "scripts/known_answers.py writes the page anew"


def test_the_page_of_known_answers_has_every_case_and_no_other() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][2:]
    assert [line.split(" | ")[:2] for line in rows] == [[f"| {one.subject}", one.case] for one in ANSWERS]
    assert page(rows) == PAGE.read_text(encoding="utf-8")


@pytest.mark.slow
def test_policies_between_fifo_and_greedy_lie_between_them() -> None:
    fifo, greedy = (collected_waf(policy, 15) for policy in ("fifo", "greedy"))
    for policy in ("windowed_greedy", "d_choices"):
        assert 0.995 * greedy < collected_waf(policy, 15) < 1.005 * fifo, policy
