"""The answer and its reasons in words."""

from collections.abc import Sequence

import torch

from lastlayer.advice.choosing import MARGIN, Choice, Interval
from lastlayer.advice.course import Course
from lastlayer.advice.judging import Judgement
from lastlayer.advice.needs import Needs, time_in_words
from lastlayer.advice.references import Finer, References
from lastlayer.advice.why import LINEAR, Why
from lastlayer.catalogue import card_of, size_in_words, thrift

WORTH_SAYING = 0.01  # a price of never retraining above this comes first
_REPAIRS = {
    "old_vectors": "its old vectors would repair",
    "no_later_classes": "removing later classes would",
    "either": "either would",
    "both": "only both would",
}


def answer_of(judgement: Judgement, choice: Choice, needs: Needs, references: References) -> str:
    """Say which head to use; what a reader must know before that comes first."""
    head, scores = choice.head, choice.scores
    first = ""
    price = references.price()
    if price is not None and price[1].value > WORTH_SAYING:
        reached = references.scores.of(price[0])
        first = (
            f"Retraining on everything would be better: a {price[0]} is right for "
            f"{_percent(reached)}, {price[1]} points more than the best head that never retrains. "
        )
    if not choice.learned:
        first = (
            "These rows cannot tell which head to use: none is shown to be right more often than "
            f"always answering '{choice.guess}'. If there must be one: "
        )
    rows = sum(map(len, judgement.held_y))
    times = f" in {len(judgement.splits)} splits" if len(judgement.splits) > 1 else ""
    use = "use" if first.endswith(": ") else "Use"
    text = (
        f"{first}{use} {head}: it is right for {_accuracy(scores.accuracy(head))} of {rows} "
        f"held-out rows{times}"
    )
    if choice.level:
        return f"{text}; the rows cannot tell it from {_and(choice.level)}."
    if choice.twins and set(choice.twins) | {head} >= set(choice.behind):
        return f"{text}; {_and(choice.twins)} {_is(choice.twins)} the same here."
    return f"{text}, more than any other{_that_fits(needs)}."


def _that_fits(needs: Needs) -> str:
    return " that meets " + " ".join(map(needs.words, needs.given)) if needs.given else ""


def reasons_of(
    course: Course,
    judgement: Judgement,
    choice: Choice,
    needs: Needs,
    why: Why,
    references: References,
    finer: Sequence[Finer],
    tested: References | None,
) -> tuple[str, ...]:
    """Give the reasons, and what a user should know beside them."""
    return (
        *_choice(choice),
        *_cost(course, judgement, choice),
        *_constraints(needs, choice, course),
        *_price(references),
        *_linear(choice, why, references),
        *_pairs(choice, why),
        *_finer(finer, course, choice),
        *_test(tested),
        *_unjudged(course, judgement),
        *_left_out(judgement),
    )


def _choice(choice: Choice) -> list[str]:
    said = []
    if choice.head != choice.best:
        behind = choice.behind[choice.head]
        said.append(
            f"{choice.best} is the best on the held-out rows; {choice.head} is thriftier and shown "
            f"to lose less than {100 * MARGIN:.1f} points ({behind} behind)."
        )
    if choice.twins:
        said.append(
            f"{_and([choice.head, *choice.twins])} answer alike on these rows, which cannot tell "
            "them apart: the thriftiest stands for them."
        )
    if choice.level:
        nearest = choice.level[0]
        said.append(
            f"Within the noise of the held-out rows: {_and(choice.level)}. More rows would tell; "
            f"{nearest} is {choice.behind[nearest]} points behind."
            if nearest in choice.behind
            else f"Within the noise of the held-out rows: {_and(choice.level)}."
        )
    return said


def _cost(course: Course, judgement: Judgement, choice: Choice) -> list[str]:
    head = choice.head
    can, size = card_of(head).abilities, choice.sizes[head]
    keeps = "every row" if can.keeps_samples else "no rows"
    said = [
        f"It keeps {card_of(head).state} ({size_in_words(size)}, {keeps}) and answers one sample "
        f"in {time_in_words(judgement.verdicts[head].latency)} here."
    ]
    thriftier = [
        name for name in choice.behind if thrift(name)[0] < thrift(head)[0] and name != head
    ]
    if thriftier:
        best = max(thriftier, key=choice.scores.of)
        said.append(
            f"{best} keeps no rows ({size_in_words(choice.sizes[best])}) and is "
            f"{choice.scores.difference(head, best)} points behind."
        )
    return said


def _constraints(needs: Needs, choice: Choice, course: Course) -> list[str]:
    said = [f"{needs.words(name)} costs {cost} points." for name, cost in choice.costs.items()]
    single = int((course.y[course.rows].bincount() == 1).sum())
    if needs.no_samples and single:
        said.append(
            f"No rows are kept, but the mean of a class with a single row is that row: {single} "
            "such classes here."
        )
    return said


def _price(references: References) -> list[str]:
    price = references.price()
    if price is None:
        return ["No reference was trained: the data are too large for it here."]
    name, gap = price
    if gap.high < 0:
        return [
            f"Never retraining costs nothing here: a {name} reaches "
            f"{_percent(references.scores.of(name))} on the same rows, {gap.turned()} points less."
        ]
    return [
        f"The price of never retraining is {gap} points: a {name} reaches "
        f"{_percent(references.scores.of(name))} on the same rows."
    ]


def _linear(choice: Choice, why: Why, references: References) -> list[str]:
    if LINEAR not in choice.scores.names:
        return []
    said = []
    reached = _percent(choice.scores.of(LINEAR))
    fall = references.fall(LINEAR)
    if fall is None:
        said.append(f"An ordinary linear layer reaches {reached}.")
    elif fall.low > 0:
        said.append(
            f"An ordinary linear layer falls to {reached}: {fall} points below itself on "
            "everything at once."
        )
    else:
        said.append(
            f"An ordinary linear layer reaches {reached}, no less than on everything at once "
            f"({fall} points)."
        )
    if fall is not None and fall.low > 0:
        lost = {name: share for name, share in why.repairs.items() if share >= 0.001}
        if lost:
            parts = [f"{_percent(share)} that {_REPAIRS[name]}" for name, share in lost.items()]
            said.append(f"Of all rows it had right once and lost: {_and(parts)}.")
        remedies = [
            f"{kind} ({name}) {gain.value * 100:+.1f}".replace("-", "−")
            for kind, (name, gain) in why.remedies.items()
        ]
        said.append(f"What would help, in points: {'; '.join(remedies)}.")
    return said


def _pairs(choice: Choice, why: Why) -> list[str]:
    said = []
    if why.clashes:
        pairs = [f"{a} to that of {b}" for a, b, _ in why.clashes[:3]]
        said.append(
            f"In the linear layer these classes lie closer to another's row: {_and(pairs)}."
        )
    if why.confusions:
        pairs = [f"{c.true} for {c.taken_for} ({_percent(c.share)})" for c in why.confusions[:3]]
        said.append(f"{choice.head} most often takes {_and(pairs)}.")
    return said


def _finer(finer: Sequence[Finer], course: Course, choice: Choice) -> list[str]:
    said = []
    for one in finer:
        name = (
            choice.head
            if choice.head in one.gains
            else max(one.gains, key=lambda head: one.gains[head][1])
        )
        before, after, gain = one.gains[name]
        pays = "pays" if gain.low > 0 else "is not shown to pay"
        text = (
            f"'{one.column}' refines '{course.label}': learning it and answering '{course.label}' "
            f"{pays}, {name} goes from {_percent(before)} to {_percent(after)} ({gain} points)"
        )
        best = max(one.gains, key=lambda head: one.gains[head][1])
        if best != name and gain.low > 0:
            text += f"; the best so is {best} with {_percent(one.gains[best][1])}"
        said.append(f"{text}.")
    return said


def _test(tested: References | None) -> list[str]:
    if tested is None:
        return ["There are no test rows: the accuracies are those on held-out training rows."]
    scores, head = tested.scores, tested.head
    parts = [f"{head} {_accuracy(scores.accuracy(head))}"]
    if LINEAR in scores.names and head != LINEAR:
        parts.append(f"the linear layer {_percent(scores.of(LINEAR))}")
    parts += [f"a {name} {_percent(scores.of(name))}" for name in tested.names]
    return [
        f"On {tested.rows} test rows, looked at once after the choice, all training rows learned: "
        f"{_and(parts)}."
    ]


def _unjudged(course: Course, judgement: Judgement) -> list[str]:
    held = torch.cat([split.held for split in judgement.splits])
    without = set(range(course.n_tasks)) - set(course.task_of[held].tolist())
    if not without:
        return []
    numbers = [str(task + 1) for task in sorted(without)]
    some = _and(numbers if len(numbers) <= 5 else [*numbers[:5], f"{len(numbers) - 5} more"])
    many = len(numbers) > 1
    return [
        f"{'Tasks' if many else 'Of the stream, task'} {some} {'have' if many else 'has'} no "
        "held-out rows: learned from, but not judged."
    ]


def _left_out(judgement: Judgement) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for name, text in judgement.left_out.items():
        reasons.setdefault(text, []).append(name)
    return [f"Left out: {_and(names)} ({text})." for text, names in reasons.items()]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _accuracy(accuracy: Interval) -> str:
    return f"{_percent(accuracy.value)} ({100 * accuracy.low:.1f} to {100 * accuracy.high:.1f})"


def _and(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
