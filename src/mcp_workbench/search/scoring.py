"""Adding up what a query's words weigh, without looking at tools that can't be among the best."""

from __future__ import annotations

from collections.abc import Collection, Sequence

Weights = dict[int, float]  # of a word, in each tool that has it
Scores = dict[int, float]
Term = tuple[float, Weights, float]  # how much a word counts, its weights, the most it can add

WORTH = 0.5  # of all that the words can add; before that much is left, no tool can be ruled out
FEW = 200  # weights; to read them all is less work than to leave some out
SLACK = 1 + 1e-9  # sums in another order differ in their last digits


def best_scores(terms: Sequence[Term], most: int) -> Scores:
    """The scores of the best tools, `most` of them and all that equal the last.

    Words that count most come first. As soon as what is left can't lift a tool among the best that
    has none of them so far, only those are looked at that it can.
    """
    scores: Scores = {}
    left, last = SLACK * sum(adds for *_, adds in terms), 0.0
    worth, unread = WORTH * left, sum(len(weights) for _, weights, _ in terms)
    for number, (factor, weights, adds) in enumerate(terms):
        if left < worth and unread > FEW and len(scores) > most:
            last = _last(scores, most, last)
            if left < last:
                return _narrowed(scores, terms[number:], most, last, left)
        if scores:
            before = scores.get
            for tool, weight in weights.items():
                scores[tool] = before(tool, 0.0) + factor * weight
        else:
            scores = dict(zip(weights, map(factor.__mul__, weights.values()), strict=True))
        left -= adds
        unread -= len(weights)
    return _best(scores, most, last)


def scores_of(tools: Collection[int], terms: Sequence[Term], most: int) -> Scores:
    """The same among some tools: only they are looked at."""
    scores: Scores = {}
    wanted = dict.fromkeys(tools, 0.0)
    for factor, weights, _ in terms:
        for tool in wanted.keys() & weights.keys():
            scores[tool] = scores.get(tool, 0.0) + factor * weights[tool]
    return _best(scores, most, 0.0)


def _narrowed(scores: Scores, terms: Sequence[Term], most: int, last: float, left: float) -> Scores:
    """The other words added to those that can still be among the best, which become fewer."""
    for factor, weights, adds in terms:
        if len(scores) > 2 * most:
            last = _last(scores, most, last)
            least = last - left
            scores = {tool: score for tool, score in scores.items() if score >= least}
        if len(scores) < len(weights):
            weight_in = weights.get
            for tool, score in scores.items():
                weight = weight_in(tool)
                if weight is not None:
                    scores[tool] = score + factor * weight
        else:
            for tool in scores.keys() & weights.keys():
                scores[tool] += factor * weights[tool]
        left -= adds
    return _best(scores, most, last)


def _best(scores: Scores, most: int, last: float) -> Scores:
    if len(scores) <= most:
        return scores
    last = _last(scores, most, last)
    return {tool: score for tool, score in scores.items() if score >= last}


def _last(scores: Scores, most: int, least: float) -> float:
    """The score of the last among the best, of which it is known that it is not below `least`."""
    high = [score for score in scores.values() if score >= least]
    high.sort(reverse=True)
    return high[most - 1]
