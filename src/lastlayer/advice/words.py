"""The answer and its reasons in words."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lastlayer.advice.choosing import MARGIN, Choice, Interval
from lastlayer.advice.needs import Needs, time_in_words
from lastlayer.advice.references import Finer, References
from lastlayer.advice.why import LINEAR, Why
from lastlayer.catalogue import card_of, size_in_words, thrift
from lastlayer.evaluate.judge import Judgement
from lastlayer.evaluate.stream import Stream

WORTH_SAYING = 0.01  # a price of never retraining above this comes first
_REPAIRS = {
    "old_vectors": "only its old vectors",
    "no_later_classes": "only removing later classes",
    "either": "either of the two",
    "both": "only both together",
}


def answer_of(judgement: Judgement, choice: Choice, needs: Needs, references: References) -> str:
    """Return the sentence that says which head to use, preceded by what matters even more."""
    head, scores = choice.head, choice.scores
    first = ""
    price = references.price()
    if price is not None and price[1].value > WORTH_SAYING:
        reached = references.scores.of(price[0])
        first = (
            f"Retraining on everything would be better: a {price[0]} gets {_percent(reached)} "
            f"right, {price[1]} points more than the best head that never retrains. "
        )
    if not choice.learned:
        first = (
            "These rows do not show which head to use: none is clearly better than always "
            f"answering '{choice.guess}'. If you need one anyway: "
        )
    rows = sum(map(len, judgement.held_y))
    times = f" in {len(judgement.splits)} splits" if len(judgement.splits) > 1 else ""
    use = "use" if first.endswith(": ") else "Use"
    text = (
        f"{first}{use} {head}: it gets {_accuracy(scores.accuracy(head))} of {rows} held-out "
        f"rows right{times}"
    )
    if choice.level:
        return f"{text}; {_few(choice.level)} {_is(choice.level)} too close to tell apart from it."
    if choice.twins:
        return f"{text}; {_few(choice.twins)} {_give(choice.twins)} the same answers."
    return f"{text}, more than any other{_that_fits(needs)}."


def _that_fits(needs: Needs) -> str:
    return " that meets " + " ".join(map(needs.words, needs.given)) if needs.given else ""


def reasons_of(
    stream: Stream,
    judgement: Judgement,
    choice: Choice,
    needs: Needs,
    why: Why,
    references: References,
    finer: Sequence[Finer],
    tested: References | None,
) -> tuple[str, ...]:
    """Return the reasons, and what else a user should know."""
    return (
        *_choice(choice),
        *_cost(stream, judgement, choice),
        *_constraints(needs, choice, stream),
        *_price(references),
        *_linear(choice, why, references),
        *_pairs(choice, why),
        *_finer(finer, stream, choice),
        *_test(stream, tested),
        *_unjudged(stream, judgement),
        *_left_out(judgement),
    )


def _choice(choice: Choice) -> list[str]:
    said = []
    if choice.head != choice.best:
        behind = choice.behind[choice.head]
        said.append(
            f"{choice.best} is the best on the held-out rows; {choice.head} needs less and is "
            f"shown to lose less than {100 * MARGIN:.1f} points ({behind} behind)."
        )
    if choice.twins:
        said.append(
            f"{_few([choice.head, *choice.twins])} give the same answers on these rows: the one "
            "that needs least is named."
        )
    if choice.level:
        nearest = choice.level[0]
        said.append(
            f"Too close to call on the held-out rows: {_and(choice.level)}. More rows would tell; "
            f"{nearest} is {choice.behind[nearest]} points behind."
            if nearest in choice.behind
            else f"Too close to call on the held-out rows: {_and(choice.level)}."
        )
    return said


def _cost(stream: Stream, judgement: Judgement, choice: Choice) -> list[str]:
    head = choice.head
    can, size = card_of(head).abilities, choice.sizes[head]
    keeps = "every row" if can.keeps_samples else "no rows"
    said = [
        f"It keeps {card_of(head).state} ({size_in_words(size)}, {keeps}) and predicts one sample "
        f"in {time_in_words(judgement.verdicts[head].latency)} on this machine."
    ]
    if card_of(head).by_gradient:
        said.append(
            f"It was judged with features divided by {judgement.scale:.3g}, a learning rate of "
            f"{judgement.verdicts[head].lr:.3g} and {judgement.epochs} epochs of each task, in the "
            "order of the tasks. advice.fit() in Python trains it so; lastlayer fit takes "
            f"--feature-scale {judgement.scale:.3g} --lr {judgement.verdicts[head].lr:.3g} "
            f"--epochs {judgement.epochs}, once for each task."
        )
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


def _constraints(needs: Needs, choice: Choice, stream: Stream) -> list[str]:
    said = [f"{needs.words(name)} costs {cost} points." for name, cost in choice.costs.items()]
    single = int((stream.y[stream.rows].bincount() == 1).sum())
    if needs.no_samples and single:
        said.append(
            "No rows are kept, but the mean of a class with a single row is that row; such classes "
            f"here: {single}."
        )
    return said


def _price(references: References) -> list[str]:
    price = references.price()
    if price is None:
        return ["No reference was trained: the data are too large for that on this machine."]
    name, gap = price
    if gap.high < 0:
        return [
            f"Never retraining costs nothing here: a {name} gets "
            f"{_percent(references.scores.of(name))} of the same rows right, {gap.turned()} points "
            "less."
        ]
    if gap.low <= 0:
        return [
            f"Never retraining is not shown to cost anything: a {name} gets "
            f"{_percent(references.scores.of(name))} of the same rows right, {gap} points more."
        ]
    return [
        f"Never retraining costs {gap} points: a {name} gets "
        f"{_percent(references.scores.of(name))} of the same rows right."
    ]


def _linear(choice: Choice, why: Why, references: References) -> list[str]:
    if LINEAR not in choice.scores.names:
        return []
    said = []
    reached = _percent(choice.scores.of(LINEAR))
    fall = references.fall(LINEAR)
    falls = fall is not None and fall.low > 0 and fall.value >= MARGIN
    if fall is None:
        said.append(f"An ordinary linear layer reaches {reached}.")
    elif falls:
        said.append(
            f"An ordinary linear layer falls to {reached}: {fall} points below the same layer "
            "trained on everything at once."
        )
    elif fall.low > 0:
        said.append(
            f"An ordinary linear layer reaches {reached}, {fall} points below the same layer "
            "trained on everything at once."
        )
    else:
        said.append(
            f"An ordinary linear layer reaches {reached}, no less than when trained on everything "
            f"at once ({fall} points)."
        )
    if falls:
        lost = {name: share for name, share in why.repairs.items() if share >= 0.001}
        if lost:
            parts = [f"{_REPAIRS[name]} {_percent(share)}" for name, share in lost.items()]
            said.append(
                "Rows that it once had right and lost, in % of all rows, by what would bring them "
                f"back: {_and(parts)}."
            )
        remedies = [
            f"{kind} ({name}) {gain.value * 100:+.1f}".replace("-", "−")
            for kind, (name, gain) in why.remedies.items()
        ]
        said.append(f"What would help, in points: {'; '.join(remedies)}.")
    return said


def _pairs(choice: Choice, why: Why) -> list[str]:
    said = []
    if why.clashes:
        pairs = [f"{a} to {b}" for a, b, _ in why.clashes[:3]]
        said.append(
            "In the linear layer these classes lie closer to another class's row than to their "
            f"own: {_and(pairs)}."
        )
    if why.confusions:
        pairs = [f"{c.true} for {c.taken_for} ({_percent(c.share)})" for c in why.confusions[:3]]
        said.append(f"{choice.head} most often mistakes {_and(pairs)}.")
    return said


def _finer(finer: Sequence[Finer], stream: Stream, choice: Choice) -> list[str]:
    said = []
    for one in finer:
        name = (
            choice.head
            if choice.head in one.gains
            else max(one.gains, key=lambda head: one.gains[head][1])
        )
        before, after, gain = one.gains[name]
        pays = "pays off" if gain.low > 0 else "is not shown to pay off"
        text = (
            f"'{one.column}' refines '{stream.label}': learning the finer labels and predicting "
            f"the coarser ones {pays}: {name} goes from {_percent(before)} to {_percent(after)} "
            f"({gain} points)"
        )
        best = max(one.gains, key=lambda head: one.gains[head][1])
        if best != name and gain.low > 0:
            text += f"; the best this way is {best} with {_percent(one.gains[best][1])}"
        said.append(f"{text}.")
    return said


def _test(stream: Stream, tested: References | None) -> list[str]:
    if tested is None:
        return ["There are no test rows: the accuracies are those on held-out training rows."]
    scores, head = tested.scores, tested.head
    parts = [f"{head} {_accuracy(scores.accuracy(head))}"]
    if LINEAR in scores.names and head != LINEAR:
        parts.append(f"the linear layer {_percent(scores.of(LINEAR))}")
    parts += [f"a {name} {_percent(scores.of(name))}" for name in tested.names]
    said = [
        f"On {tested.rows} test rows, used once after the choice, with all training rows learned: "
        f"{_and(parts)}."
    ]
    if known := stream.known_sources:
        said.append(
            f"{known} of these test rows come from sources that are among the training rows, and "
            "held-out rows never do: on the test rows every head looks better than on new sources."
        )
    return said


def _unjudged(stream: Stream, judgement: Judgement) -> list[str]:
    held = torch.cat([split.held for split in judgement.splits])
    return [*_of_one_source(stream, held), *_tasks_without(stream, held)]


def _of_one_source(stream: Stream, held: Tensor) -> list[str]:
    """Name the classes that sources keep from being judged; those of a single row are known."""
    rows = stream.y[stream.rows].bincount(minlength=stream.n_classes)
    never = (rows > 1) & (stream.y[held].bincount(minlength=stream.n_classes) == 0)
    names = [stream.names[c] for c in never.nonzero()[:, 0].tolist()]
    if stream.group is None or not names:
        return []
    return [
        f"{len(names)} of {int((rows > 0).sum())} classes ({_few(names)}; "
        f"{int(rows[never].sum())} rows) come from one source each: learned from, but not "
        "judged by."
    ]


def _tasks_without(stream: Stream, held: Tensor) -> list[str]:
    without = set(range(stream.n_tasks)) - set(stream.task_of[held].tolist())
    if not without:
        return []
    numbers = [str(task + 1) for task in sorted(without)]
    many = len(numbers) > 1
    return [
        f"{'Tasks' if many else 'Of the stream, task'} {_few(numbers)} {'have' if many else 'has'} "
        "no held-out rows: learned from, but not judged by."
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


def _few(names: Sequence[str]) -> str:
    return _and(names if len(names) <= 6 else [*names[:5], f"{len(names) - 5} more"])


def _and(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _give(names: Sequence[str]) -> str:
    return "gives" if len(names) == 1 else "give"


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
