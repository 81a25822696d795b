"""Every kind of picture becomes an upright RGB image of 8 bits; a broken one is named."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.pictures import picture

from lastlayer.errors import FileFormatError, MissingFileError, MissingPackageError
from lastlayer.extraction.datasets.decoding import read_image, to_rgb

RED = (255, 0, 0)


def saved(path: Path, image: Image.Image, **options: object) -> np.ndarray:
    image.save(path, **options)
    found = read_image(path)
    assert found.mode == "RGB"
    return np.asarray(found)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(tmp_path: Path, orientation: int) -> None:
    upright = picture(0)
    # How a camera writes the same scene when it is held in another way.
    turned = {
        2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM, 5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90, 7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }  # fmt: skip
    stored = upright if orientation == 1 else upright.transpose(turned[orientation])
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert np.array_equal(saved(tmp_path / "a.png", stored, exif=exif), np.asarray(upright))


@pytest.mark.parametrize("mode", ["L", "1"])
def test_greyscale(tmp_path: Path, mode: str) -> None:
    grey = picture(0).convert(mode)
    assert np.array_equal(
        saved(tmp_path / "a.png", grey), np.asarray(grey.convert("L"))[..., None].repeat(3, 2)
    )


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_are_scaled_and_not_cut_off(tmp_path: Path, suffix: str) -> None:
    values = np.array([[0, 257, 32896, 65535]], dtype=np.uint16)
    found = saved(tmp_path / f"a.{suffix}", Image.fromarray(values))
    assert found[0, :, 0].tolist() == [0, 1, 128, 255]


def test_cmyk(tmp_path: Path) -> None:
    found = saved(tmp_path / "a.jpg", Image.new("CMYK", (8, 8), (0, 255, 255, 0)), quality=100)
    assert np.abs(found.astype(int) - RED).max() <= 3


def test_a_palette(tmp_path: Path) -> None:
    colours = picture(0).quantize(256)
    assert np.array_equal(saved(tmp_path / "a.png", colours), np.asarray(colours.convert("RGB")))


@pytest.mark.parametrize("transparency", [1, b"\xff\x00"])
def test_a_palette_with_transparency_lies_on_white(
    tmp_path: Path, transparency: int | bytes
) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putdata([0, 1])
    found = saved(tmp_path / "a.png", image, transparency=transparency)
    assert found[0].tolist() == [[255, 0, 0], [255, 255, 255]]


@pytest.mark.parametrize(("mode", "hidden", "seen"), [
    ("RGBA", (9, 9, 9, 0), (255, 0, 0, 255)), ("LA", (9, 0), (255, 255)),
])  # fmt: skip
def test_what_is_transparent_becomes_white(
    tmp_path: Path, mode: str, hidden: tuple[int, ...], seen: tuple[int, ...]
) -> None:
    image = Image.new(mode, (2, 1), hidden)
    image.putpixel((1, 0), seen)
    found = saved(tmp_path / "a.png", image)
    assert found[0].tolist() == [[255, 255, 255], [255, 0, 0] if mode == "RGBA" else [255] * 3]


def test_one_transparent_colour(tmp_path: Path) -> None:
    image = Image.new("RGB", (2, 1), (9, 9, 9))
    image.putpixel((1, 0), RED)
    found = saved(tmp_path / "a.png", image, transparency=(9, 9, 9))
    assert found[0].tolist() == [[255, 255, 255], [255, 0, 0]]


def test_of_a_film_the_first_picture(tmp_path: Path) -> None:
    first, second = Image.new("L", (2, 2), 0), Image.new("L", (2, 2), 255)
    assert not saved(tmp_path / "a.gif", first, save_all=True, append_images=[second]).any()


def test_floating_point_pixels_have_no_range(tmp_path: Path) -> None:
    Image.new("F", (2, 2)).save(tmp_path / "a.tif")
    with pytest.raises(FileFormatError, match=r"a\.tif is not one, or is damaged.* unknown range"):
        read_image(tmp_path / "a.tif")


def test_broken_images_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    picture(0, (64, 64)).save(path)
    whole = path.read_bytes()
    for content in (b"", b"no image", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match=r"a\.jpg is not one, or is damaged"):
            read_image(path)
    with pytest.raises(MissingFileError, match=r"no such file: .*b\.jpg; it must be an image"):
        read_image(tmp_path / "b.jpg")


def test_an_rgb_image_keeps_its_pixels() -> None:
    image = picture(3)
    assert np.array_equal(np.asarray(to_rgb(image.copy())), np.asarray(image))


def test_without_pillow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(MissingPackageError, match=r"pip install '.\[images\]'"):
        read_image(tmp_path / "a.jpg")
