"""The ResNet-20 for images of 32 × 32 pixels (He et al. 2016, section 4.2), up to its features."""

from torch import Tensor, nn


class Block(nn.Module):
    """Two convolutions and a shortcut, which is projected where the shape changes."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = nn.Sequential()
        if stride != 1 or channels_in != channels:
            self.downsample.append(nn.Conv2d(channels_in, channels, 1, stride, bias=False))
            self.downsample.append(nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, channels_in, s, s) to (n, channels, s / stride, s / stride)."""
        inner = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out: Tensor = self.relu(inner + self.downsample(x))
        return out


def _stage(channels_in: int, channels: int, stride: int) -> nn.Sequential:
    first = Block(channels_in, channels, stride)
    return nn.Sequential(first, Block(channels, channels, 1), Block(channels, channels, 1))


class ResNet20(nn.Module):
    """The network whose weights were released for CIFAR10 and CIFAR100.

    ``forward`` gives what its output layer ``fc`` sees: 64 features, pooled over the image.
    """

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = _stage(16, 16, 1)
        self.layer2 = _stage(16, 32, 2)
        self.layer3 = _stage(32, 64, 2)
        self.fc = nn.Linear(64, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map normalised images (n, 3, 32, 32) to features (n, 64)."""
        maps: Tensor = self.layer3(self.layer2(self.layer1(self.relu(self.bn1(self.conv1(x))))))
        return maps.mean((2, 3))
