"""Alignment and framing: similarities against Umeyama's own solution, marks on the template, CFP's fiducials."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from isosphere.data.alignment import (
    TEMPLATE,
    FaceView,
    align,
    cfp_landmarks,
    framed,
    landmarks_of,
    listed_landmarks,
    similarity,
    visible_five,
)
from isosphere.data.images import ImageSet
from isosphere.data.recordio import RecordSet
from isosphere.errors import BadArgument, BadList, DamagedFile, Incompatible, NotFound, UnreadableImages
from raised import raised

COLORS = [(255, 60, 60), (60, 255, 60), (60, 60, 255), (255, 255, 60), (60, 255, 255)]


def moved(points: np.ndarray, angle: float, scale: float, shift: tuple[float, float]) -> np.ndarray:
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return scale * points @ turn.T + np.array(shift)


def umeyama(points: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The paper's equations 34 to 42 with the singular value decomposition."""
    mean_x, mean_y = points.mean(0), targets.mean(0)
    covariance = (targets - mean_y).T @ (points - mean_x) / len(points)
    u, d, vt = np.linalg.svd(covariance)
    signs = np.diag([1.0, np.sign(np.linalg.det(u) * np.linalg.det(vt))])
    rotation = u @ signs @ vt
    scale = (d * np.diag(signs)).sum() / ((points - mean_x) ** 2).sum(1).mean()
    return np.concatenate([scale * rotation, (mean_y - scale * rotation @ mean_x)[:, None]], axis=1)


def test_a_known_motion_is_found_exactly() -> None:
    points = np.random.default_rng(0).normal(size=(5, 2))
    matrix = similarity(torch.from_numpy(points), torch.from_numpy(moved(points, 0.7, 2.5, (30, -4)))).numpy()
    expected = [[2.5 * np.cos(0.7), -2.5 * np.sin(0.7), 30], [2.5 * np.sin(0.7), 2.5 * np.cos(0.7), -4]]
    np.testing.assert_allclose(matrix, expected, atol=1e-12)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_noisy_points_are_fitted_as_umeyama_does(count: int) -> None:
    for seed in range(20):
        points, targets = np.random.default_rng(seed).normal(size=(2, count, 2))
        found = similarity(torch.from_numpy(points), torch.from_numpy(targets)).numpy()
        np.testing.assert_allclose(found, umeyama(points, targets), atol=1e-10)


def marked(landmarks: np.ndarray, height: int, width: int, radius: float) -> torch.Tensor:
    """A dark image with a smooth spot of its own color around each landmark."""
    y, x = np.mgrid[:height, :width]
    image = np.zeros((height, width, 3))
    for (left, top), color in zip(landmarks, COLORS, strict=True):
        spot = np.exp(-((x - left) ** 2 + (y - top) ** 2) / (2 * radius**2))
        image += spot[..., None] * np.array(color)
    return torch.from_numpy(image.clip(0, 255).round().astype(np.uint8)).permute(2, 0, 1)


def spots(image: torch.Tensor) -> np.ndarray:
    """The center of the spot near each template point, (5, 2) as x, y."""
    bright = image.double().sum(0).numpy()
    y, x = np.mgrid[: bright.shape[0], : bright.shape[1]]
    found = []
    for left, top in TEMPLATE.numpy():
        weight = bright * (np.hypot(x - left, y - top) < 8)
        found.append(((weight * x).sum() / weight.sum(), (weight * y).sum() / weight.sum()))
    return np.array(found)


@pytest.mark.parametrize("angle, scale, size", [(0.0, 1.0, 130), (0.5, 1.8, 400), (-0.3, 0.6, 120), (2.8, 4.0, 600)])
def test_marked_landmarks_come_to_lie_on_the_template(angle: float, scale: float, size: int) -> None:
    centered = TEMPLATE.numpy() - 56
    landmarks = moved(centered, angle, scale, (size * 0.47, size * 0.52))
    image = marked(landmarks, size, size + 20, radius=2 * max(scale, 1))
    face = align(image, torch.from_numpy(landmarks))
    assert face.shape == (3, 112, 112) and face.dtype == torch.uint8
    assert np.abs(spots(face) - TEMPLATE.numpy()).max() < 0.5
    hidden = torch.from_numpy(landmarks).clone()
    hidden[[1, 4]] = torch.nan
    assert np.abs(spots(align(image, hidden)) - TEMPLATE.numpy()).max() < 0.5


@pytest.mark.parametrize("angle, scale", [(0.0, 4.0), (0.4, 4.3)])
def test_a_large_photograph_is_reduced_without_moire(angle: float, scale: float) -> None:
    """Squares of a pixel are finer than the frame can show: they become gray, and the spots on them stay in place."""
    landmarks = moved(TEMPLATE.numpy() - 56, angle, scale, (330, 350))
    chequered = torch.from_numpy(255 * (np.indices((700, 660)).sum(0) % 2)).to(torch.uint8).expand(3, -1, -1)
    face = align(chequered, torch.from_numpy(landmarks))[:, 8:-8, 8:-8].double()
    assert face.std() < 8 and abs(face.mean() - 127.5) < 2
    spotted = (marked(landmarks, 700, 660, radius=2 * scale).double() * chequered / 255).to(torch.uint8)
    assert np.abs(spots(align(spotted, torch.from_numpy(landmarks))) - TEMPLATE.numpy()).max() < 0.5


def test_landmarks_on_the_template_change_nothing_and_the_outside_is_black() -> None:
    image = torch.randint(1, 256, (3, 112, 112), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(align(image, TEMPLATE), image)
    moved_left = align(image, TEMPLATE - torch.tensor([20.0, 0.0]))  # the frame passes the edge
    assert torch.equal(moved_left[:, :, 20:], image[:, :, :92]) and not moved_left[:, :, :20].any()


def test_too_few_landmarks_are_an_error() -> None:
    image, landmarks = torch.zeros(3, 50, 50, dtype=torch.uint8), torch.full((5, 2), torch.nan)
    landmarks[0] = 3
    with raised(BadArgument, name="landmarks", value=1):
        align(image, landmarks)
    with raised(BadArgument, name="landmarks", value=[[1.0, 1.0]] * 5):
        align(image, torch.ones(5, 2))


def test_the_view_of_lfw_frames_it_as_alignment_does() -> None:
    """LFW's mean landmarks, as measured over its 13,233 images, within two pixels of the template."""
    mean = np.array([(104.7, 112.5), (145.1, 111.7), (124.8, 136.5), (107.6, 157.1), (143.6, 156.7)])
    face = FaceView()(marked(mean, 250, 250, radius=2.5))
    assert np.abs(spots(face) - TEMPLATE.numpy()).max() < 2.5


def test_views_of_odd_images() -> None:
    for height, width in ((61, 76), (250, 250), (40, 20), (1, 1)):
        image = torch.randint(0, 256, (3, height, width), dtype=torch.uint8)
        assert FaceView()(image).shape == FaceView(1.0, 0.0)(image).shape == (3, 112, 112)
    face = torch.randint(0, 256, (3, 112, 112), dtype=torch.uint8)
    assert torch.equal(FaceView(1.0, 0.0)(face), face)
    tall = torch.arange(100, dtype=torch.uint8)[:, None].expand(3, 100, 40)
    assert torch.equal(FaceView(1.0, 0.0, 40)(tall), tall[:, 30:70]) and torch.equal(
        FaceView(1.0, 0.5, 40)(tall), tall[:, 10:50]
    )


def half(right: bool, angle: float) -> np.ndarray:
    """30 fiducials of one half of a face on the template; of the other half if it is the image's right."""
    points = np.random.default_rng(0).uniform(0, 112, (30, 2))
    eye, nose, mouth = TEMPLATE.numpy()[[1, 2, 4] if right else [0, 2, 3]]
    points[12:18] = eye + 4 * np.array([(np.cos(a), np.sin(a)) for a in np.arange(6) * np.pi / 3])
    points[21], points[25] = nose, mouth
    return moved(points, angle, 1.5, (10, 40))


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("angle", [0.0, 0.6, -0.9])
def test_fiducials_of_either_half(right: bool, angle: float) -> None:
    five = visible_five(half(right, angle))
    expected = moved(TEMPLATE.numpy(), angle, 1.5, (10, 40))
    seen = [1, 2, 4] if right else [0, 2, 3]
    np.testing.assert_allclose(five[seen], expected[seen], atol=1e-9)
    assert np.isnan(five[[0, 3] if right else [1, 4]]).all()


@pytest.fixture
def people(tmp_path: Path) -> ImageSet:
    """Seventy marked faces of seven people, in CFP's layout, every second one a half turned the other way."""
    for index in range(70):
        kind = "frontal" if index % 2 else "profile"
        file = tmp_path / "Data" / "Images" / f"{index // 10 + 1:03d}" / kind / f"{index % 10 + 1:02d}.png"
        fiducials = tmp_path / "Data" / "Fiducials" / file.parent.parent.name / kind / f"{file.stem}.txt"
        for path in (file, fiducials):
            path.parent.mkdir(parents=True, exist_ok=True)
        image = marked(moved(TEMPLATE.numpy(), 0.003 * index, 1.5, (10, 40)), 230, 190, radius=3)
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(file)
        np.savetxt(fiducials, half(index % 2 == 0, 0.003 * index), delimiter=",", fmt="%.4f")
    paths = sorted(map(str, (tmp_path / "Data" / "Images").glob("*/*/*.png")))
    labels = torch.tensor([int(Path(path).parents[1].name) - 1 for path in paths])
    return ImageSet(labels, [f"{number:03d}" for number in range(1, 8)], paths)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_whole_set_is_framed_in_memory(people: ImageSet, workers: int) -> None:
    landmarks = cfp_landmarks(people)
    landmarks[3] = torch.nan  # this one is seen through the view
    state = torch.get_rng_state()
    with pytest.warns(UserWarning) as warned:
        faces = framed(people, FaceView(), landmarks, workers)
    assert people.paths[3] in str(warned[0].message)
    assert torch.equal(torch.get_rng_state(), state)
    assert faces.note.startswith("1 of 70 ")
    assert faces.pixels.shape == (70, 3, 112, 112) and faces.classes == people.classes
    assert torch.equal(faces.labels, people.labels)
    assert torch.equal(faces[3], FaceView()(people[3]))
    for index in (0, 1, 5, 69):
        assert torch.equal(faces[index], align(people[index], landmarks[index]))
        assert np.abs(spots(faces[index]) - TEMPLATE.numpy()).max() < 0.5
    assert torch.equal(framed(people, FaceView(), None, workers)[9], FaceView()(people[9]))


def test_faces_without_landmarks_are_counted_if_they_are_cut(people: ImageSet, tmp_path: Path) -> None:
    Image.new("RGB", (112, 112)).save(people.paths[2])  # this one is in its frame already
    (tmp_path / "elsewhere").mkdir()
    nowhere = landmarks_of(people, tmp_path / "elsewhere")
    with pytest.warns(UserWarning):
        assert framed(people, landmarks=nowhere, workers=0).note.startswith("69 of 70 ")
    one = cfp_landmarks(people)
    one[[2, 5]] = torch.nan
    one[5, 0] = 20.0  # a single one is too few
    with pytest.warns(UserWarning):
        assert framed(people, landmarks=one, workers=0).note.startswith("1 of 70 ")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert framed(people, workers=0).note == ""  # nobody asked for alignment
        assert framed(people, landmarks=landmarks_of(people, tmp_path), workers=0).note == ""


def test_landmarks_of_packs_and_records(people: ImageSet, tmp_path: Path) -> None:
    pixels = torch.zeros(2, 3, 120, 120, dtype=torch.uint8)
    records = RecordSet(None, torch.arange(2), torch.tensor([0, 0]), ["0"])
    assert landmarks_of(ImageSet.from_pixels(pixels, torch.tensor([0, 0]), ["a"]), tmp_path) is None
    assert landmarks_of(records, tmp_path).isnan().all() and landmarks_of(records, tmp_path).shape == (2, 5, 2)
    (tmp_path / "landmarks.txt").write_text("Ann/1.jpg 1 2 3 4 5 6 7 8 9 10\n")
    with raised(Incompatible, fields=("data.root", "data.align")):
        landmarks_of(records, tmp_path / "train.rec")


@pytest.mark.parametrize("workers", [0, 2])
def test_landmarks_outside_of_their_image_are_named(people: ImageSet, workers: int) -> None:
    landmarks = cfp_landmarks(people)
    landmarks[3, landmarks[3].isfinite()] *= 10
    landmarks[66] = torch.where(landmarks[66].isnan(), torch.nan, 7.0)
    with raised(UnreadableImages, total=70, lost=()) as caught:
        framed(people, landmarks=landmarks, workers=workers)
    assert [failure.path for failure in caught.value.failures] == [people.paths[3], people.paths[66]]
    image = torch.full((3, 40, 50), 255, dtype=torch.uint8)
    with raised(BadArgument, name="landmarks", value=10**9):
        align(image, torch.cat([TEMPLATE[:4], torch.tensor([[1e9, 1e9]])]))
    for height, width in ((40, 50), (1, 500), (500, 1)):  # at the bound nothing breaks
        corner = 2.0 * max(height, width)
        image = torch.full((3, height, width), 255, dtype=torch.uint8)
        assert align(image, torch.tensor([[-corner, -corner], [corner, corner]] * 2 + [[0, 0]])).shape == (3, 112, 112)
    muddled = torch.tensor([(0.0, -80.0), (-20, 0), (20, 70), (40, -60), (40, -10)])  # reduces 50 pixels to one
    assert align(torch.zeros(3, 50, 50, dtype=torch.uint8), muddled).shape == (3, 112, 112)


@pytest.mark.parametrize("workers", [0, 2])
def test_unreadable_images_are_counted_and_people_without_any_named(people: ImageSet, workers: int) -> None:
    for path in [*people.paths[10:20], people.paths[65]]:
        Path(path).write_bytes(b"nothing")
    with raised(UnreadableImages, total=70, lost=("002",), remedies=()) as caught:
        framed(people, workers=workers)
    assert [failure.path for failure in caught.value.failures] == [*people.paths[10:20], people.paths[65]]


def test_missing_fiducials_are_named(people: ImageSet, tmp_path: Path) -> None:
    file = next((tmp_path / "Data" / "Fiducials" / "003").glob("*/*.txt"))
    file.write_text("1,2\n3,4\n")
    with raised(DamagedFile, path=file):
        cfp_landmarks(people)
    file.unlink()
    with raised(NotFound, path=file):
        cfp_landmarks(people)


def test_landmarks_from_a_list(tmp_path: Path) -> None:
    paths = ["/a/Zico/Zico_0001.jpg", "/a/Zico/Zico_0002.jpg", "/a/Ann/Ann_0001.jpg"]
    images = ImageSet(torch.tensor([1, 1, 0]), ["Ann", "Zico"], paths)
    values = np.arange(20.0).reshape(2, 10)
    lines = [
        "Ann/Ann_0001.jpg\t" + "\t".join(map(str, values[0])) + "\t0.99",
        "Zico/Zico_0001.jpg " + " ".join(map(str, values[1])),
        "Other/Other_0001.jpg " + " ".join(map(str, values[1])),
    ]
    (tmp_path / "landmarks.txt").write_text("\n".join(lines) + "\n")
    found = listed_landmarks(tmp_path / "landmarks.txt", images)
    assert found[2].flatten().tolist() == values[0].tolist() and found[0].flatten().tolist() == values[1].tolist()
    assert found[1].isnan().all()
    with raised(BadArgument, name="landmarks", value=(3, 5, 2)):
        framed(images.subset([0, 1]), landmarks=found)
    with raised(BadList, path=tmp_path / "landmarks.txt", line=None):
        listed_landmarks(tmp_path / "landmarks.txt", images.subset([1]))


@pytest.mark.parametrize(
    "line",
    [
        "Ann/1.jpg 1 2 3",
        "Ann/1.jpg 1 2 3 4 x 6 7 8 9 10",
        "1 2 3 4 5 6 7 8 9 10",
        "Ann/1.jpg" + " 7" * 10,
        "Ann/1.jpg 0.3 0.4 0.7 0.4 0.5 0.6 0.4 0.8 0.6 0.8",  # shares, not pixels
        "Ann/1.jpg 7 7 7 7" + " nan" * 6,
        "Ann/1.jpg 1 2 3 4 5 6 7 8 9 1e9",
        "Ann/1.jpg 1 2 3 4 5 6 7 8 9 -2e5",
    ],
)
def test_landmarks_that_cannot_be_are_named_by_their_line(tmp_path: Path, line: str) -> None:
    images = ImageSet(torch.tensor([0, 0]), ["Ann"], ["/a/Ann/0.jpg", "/a/Ann/1.jpg"])
    (tmp_path / "landmarks.txt").write_text(f"Ann/0.jpg 1 2 3 4 5 6 7 8 9 10\n\n{line}\n")
    with raised(BadList, path=tmp_path / "landmarks.txt", line=3, value=line):
        listed_landmarks(tmp_path / "landmarks.txt", images)


def test_names_with_blanks_and_lines_without_any(tmp_path: Path) -> None:
    paths = ["/a/Ann Lee/photo 1.jpg", "/a/Ann Lee/2.jpg", "/a/Bo 3/4 .5.jpg"]
    images = ImageSet(torch.tensor([0, 0, 1]), ["Ann Lee", "Bo 3"], paths)
    text = "\n\ufeff Ann Lee/photo 1.jpg 1 2 3 4 5 6 7 8 9 10.5 0.99\n  \n"[1:]
    text += "Ann Lee/2.jpg -1 +2 .5 4. 5e1 NaN nan 8 9 10\n\nBo 3/4 .5.jpg\t9 8 7 6 5 4 3 2 1 0 1 1 1 1\n\n"
    (tmp_path / "landmarks.txt").write_text(text)
    found = listed_landmarks(tmp_path / "landmarks.txt", images).view(3, 10)
    assert found[0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10.5] and found[2].tolist() == list(range(9, -1, -1))
    assert found[1].nan_to_num(-7).tolist() == [-1, 2, 0.5, 4, 50, -7, -7, 8, 9, 10]
