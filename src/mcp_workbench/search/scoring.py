"""Adding up what a query's words weigh, without looking at tools that can't be among the best."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

Weights = dict[int, float]  # of a word, in each tool that has it; all are below 1
Term = tuple[float, Weights]  # how much the word counts, and its weights

WORTH = 0.9  # of all that the words count; before that much is left, no tool can be ruled out


def best_scores(terms: Sequence[Term], most: int) -> dict[int, float]:
    """The scores of the best tools, at least `most` of them where there are as many, and of others.

    Words that count most come first. As soon as what is left can't lift a tool among the best that
    has none of them so far, only those are looked at that it can.
    """
    scores: defaultdict[int, float] = defaultdict(float)
    whole = left = sum(factor for factor, _ in terms)
    unread = sum(len(weights) for _, weights in terms)
    for number, (factor, weights) in enumerate(terms):
        if left < WORTH * whole and len(scores) > most and unread > len(scores):
            last = sorted(scores.values(), reverse=True)[most - 1]
            if left < last:
                return _finished(scores, terms[number:], last - left)
        for tool, weight in weights.items():
            scores[tool] += factor * weight
        left -= factor
        unread -= len(weights)
    return scores


def _finished(scores: dict[int, float], terms: Sequence[Term], least: float) -> dict[int, float]:
    able = {tool: score for tool, score in scores.items() if score >= least}
    for factor, weights in terms:
        for tool in able.keys() & weights.keys():
            able[tool] += factor * weights[tool]
    return able


def best(scores: dict[int, float], most: int) -> list[tuple[int, float]]:
    """The best of them, with all that equal the last."""
    if len(scores) <= most:
        return list(scores.items())
    last = sorted(scores.values(), reverse=True)[most - 1]
    return [(tool, score) for tool, score in scores.items() if score >= last]
