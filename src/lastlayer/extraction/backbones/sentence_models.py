"""Any model of sentence-transformers as a backbone: texts to features."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lastlayer.core import tensor_files
from lastlayer.core.devices import choose_device
from lastlayer.core.extras import extra
from lastlayer.core.files import say
from lastlayer.errors import MissingFileError, OptionError

PREFIX = "st:"


class SentenceModel:
    """A frozen model that maps texts to features (n, h)."""

    def __init__(self, model: Any) -> None:
        self.model = model.eval()

    @property
    def fingerprint(self) -> str:
        """A digest of its weights."""
        return tensor_files.fingerprint(self.model.state_dict())

    @property
    def preparation(self) -> str:
        """What it does to a text and to what comes out, in words."""
        steps = [type(module).__name__ for module in self.model]
        pooling = [getattr(module, "pooling_mode", None) for module in self.model]
        how = [str(mode) for mode in pooling if mode is not None]
        return ", ".join([*steps, *how, f"{self.model.max_seq_length} tokens"])

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Return the features of some texts, on the CPU."""
        with torch.inference_mode():
            z = self.model.encode(
                list(texts),
                batch_size=len(texts),
                show_progress_bar=False,
                convert_to_numpy=False,
                convert_to_tensor=True,
            )
        return torch.as_tensor(z).float().cpu()


def load_sentence_model(name: str, device: str) -> SentenceModel:
    """Load ``st:NAME_OR_FOLDER``, a model or a saved one; nothing in a folder can run code."""
    if not name.startswith(PREFIX) or name == PREFIX:
        raise OptionError(f"a backbone for texts must be {PREFIX}NAME_OR_FOLDER, got '{name}'")
    place = choose_device(device)
    asked = name.removeprefix(PREFIX)
    with extra("text", name):
        from sentence_transformers import SentenceTransformer  # noqa: PLC0415  (an extra)
    folder = Path(asked).is_dir()
    try:
        model = SentenceTransformer(
            asked,
            device=str(place),
            local_files_only=folder,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True},
        )
    except Exception as error:  # a download, or a folder of another kind, may fail in many ways
        raise MissingFileError(
            f"cannot load {name} with sentence-transformers ({say(error)}): pass the name of a "
            "model, or the folder that it was saved to"
        ) from error
    return SentenceModel(model)
