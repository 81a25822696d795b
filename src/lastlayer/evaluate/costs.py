"""What training and testing heads costs: multiplications, bytes, and how much is too much."""

from time import perf_counter

import torch

from lastlayer.catalogue.head_cards import card_of
from lastlayer.catalogue.map_widths import mapped_width
from lastlayer.core.threads import one_thread
from lastlayer.heads import options_of

# What a thing costs beside one multiplication in a large product, as it was measured.
STEP = 9.0  # one feature of one class of one sample in a training step
CLASSES = 8  # … which costs this many classes more, for what does not depend on them
SCORE = 3.5  # one feature of one class of one sample, scored by a head trained by gradient
TRACE = 6.5  # … and traced after a task: when it was lost, and by what
PROTOTYPE = 55.0  # … scored by a head that learns once and is linear
LEARN = 600.0  # one feature of one sample that such a head learns
NEIGHBOUR = 1.3  # one feature of one pair of stored and test samples, where samples are compared
VOTE = 3000.0  # one feature of one test sample, for the answers of such a head after a task
WIDE = 1.4  # one pair of mapped features of one sample that a head behind a map learns
MAP = 4.0  # one feature of one mapped feature of one test sample
READ = 3.0  # one mapped feature of one class of one test sample

EVALUATE = {"cpu": 1 << 19, "cuda": 1 << 26}  # logits at a time: on a CPU, what a cache holds
LARGEST = 64 << 20  # bytes that one head trained by gradient may take while heads are judged
KEPT = 2 << 30  # bytes that all rows may take, scaled for training or kept by a head
RETRAINED = {"cpu": 3e10, "cuda": 3e12}  # rows × features × classes that are retrained on
RETRAINED_BYTES = {"cpu": 1 << 30, "cuda": 1 << 34}  # of features, mapped where there is a map


def cost(
    head: str,
    in_features: int,
    n_classes: int,
    n: int,
    n_test: int,
    *,
    visits: int,
    answers: int,
    traced: int = 0,
) -> float:
    """Estimate the multiplications of learning ``n`` samples and answering ``n_test``.

    A head trained by gradient sees ``visits`` samples, epoch after epoch. The test samples are
    answered ``answers`` times, and traced ``traced`` times.
    """
    card, h, once = card_of(head), in_features, n_test * n_classes * in_features
    if card.by_gradient:
        return STEP * visits * (n_classes + CLASSES) * h + (SCORE * answers + TRACE * traced) * once
    solved = card.refresh(h, n_classes, n) * answers
    if card.abilities.keeps_samples and not card.abilities.linear:
        return (NEIGHBOUR * n + VOTE * answers) * n_test * h + solved
    if "map" in options_of(head):
        width = card.options.get("width") or mapped_width(h)
        read = n_test * width * (MAP * h + READ * n_classes * answers)
        return WIDE * n * width**2 + solved + read
    return PROTOTYPE * once * answers + LEARN * n * h + solved


def multiplications(visits: int, in_features: int, n_classes: int) -> float:
    """Return the multiplications of the products alone that training one head by gradient takes."""
    return 4.0 * visits * (n_classes * in_features)


def measured_speed(device: torch.device) -> float:
    """Measure multiplications a second, of one core or of the GPU."""
    a, b = (torch.rand(512, 512, device=device) for _ in "ab")
    with one_thread():
        float((a @ b)[0, 0])  # the first product sets things up
        start = perf_counter()
        for _ in range(20):
            c = a @ b
        float(c[0, 0])  # waits for a GPU
        return 20 * 512**3 / (perf_counter() - start)


def member_bytes(in_features: int, n_classes: int, batch_size: int) -> int:
    """Return the bytes of a step for one head: its state and gradient, and a batch's logits."""
    return 4 * n_classes * (6 * in_features + 4 * batch_size)


def schedule_bytes(visits: int, in_features: int, n_classes: int, batch_size: int) -> int:
    """Return the bytes of one schedule: an epoch's rows and shares, a batch with its targets."""
    return 32 * visits + 4 * batch_size * (2 * in_features + 2 * n_classes)


def evaluation_bytes(device: str) -> int:
    """Return the bytes of scoring: the logits, a copy of them, and where they are largest."""
    return 12 * EVALUATE[device]


def default_memory(device: torch.device) -> int:
    """Return half of a GPU's free memory, or 1 GiB on a CPU."""
    return torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else 1 << 30


def too_large_to_retrain(n: int, in_features: int, n_classes: int, device: str = "cpu") -> bool:
    """Return whether retraining a softmax regression on so much would take too long here."""
    numbers = n * in_features
    return numbers * n_classes > RETRAINED[device] or 4 * numbers > RETRAINED_BYTES[device]
