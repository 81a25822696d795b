"""Six classes in three sessions, far enough apart to be learned in seconds."""

import torch

from lastlayer.data import Features

N_CLASSES, H = 6, 4


def small_data(n: int = 1200, test_classes: int = N_CLASSES) -> Features:
    generator = torch.Generator().manual_seed(0)
    centres = 3 * torch.randn(N_CLASSES, H, generator=generator)

    def draw(size: int, classes: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y = torch.arange(size) % classes
        session = torch.arange(size) // classes % 3
        z = centres[y] + 0.3 * session[:, None] + torch.randn(size, H, generator=generator)
        return z, y, session

    z, y, session = draw(n, N_CLASSES)
    z_test, y_test, session_test = draw(300, test_classes)
    return Features.from_arrays(
        z, y, test=(z_test, y_test, {"session": session_test}), session=session
    )
