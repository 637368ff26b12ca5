"""Simulations give the answers that are known by formula, and the page of known answers has what they give."""

import pytest

from known_answers import ANSWERS, PAGE, KnownAnswer, choices, collected_waf, fifo, greedy, page, row


def test_the_formulas_of_collection_give_the_published_values() -> None:
    """The abstract of arXiv:1110.4245 has 2.36 for an over-provisioning of 0.3, and 2.35 in its simulation."""
    assert abs(fifo(1.3) - 2.36) < 0.005
    assert greedy(1.3) < fifo(1.3)
    assert abs(choices(1, 1.3) - 1.3 / 0.3) < 1e-6


@pytest.mark.parametrize("answer", [pytest.param(one, id=f"{one.subject}, {one.case}") for one in ANSWERS])
def test_a_simulation_gives_the_known_answer_and_the_page_has_it(answer: KnownAnswer) -> None:
    text, difference = row(answer)
    assert abs(difference) <= answer.within_pct, text
    assert text in PAGE.read_text(encoding="utf-8").splitlines(), "scripts/known_answers.py writes the page anew"


def test_the_page_of_known_answers_has_every_case_and_no_other() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][2:]
    assert [line.split(" | ")[:2] for line in rows] == [[f"| {one.subject}", one.case] for one in ANSWERS]
    assert page(rows) == PAGE.read_text(encoding="utf-8")


def test_policies_between_fifo_and_greedy_lie_between_them() -> None:
    fifo, greedy = (collected_waf(policy, 15) for policy in ("fifo", "greedy"))
    for policy in ("windowed_greedy", "d_choices"):
        assert 0.995 * greedy < collected_waf(policy, 15) < 1.005 * fifo, policy
