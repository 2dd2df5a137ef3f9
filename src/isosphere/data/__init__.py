"""Images, their split by class, the batches a step sees, and what is done to their pixels."""

from isosphere.errors import need_all

need_all("train", "isosphere.data")

from isosphere.data.cache import CachedSet  # noqa: E402
from isosphere.data.images import Images, ImageSet, open_images  # noqa: E402
from isosphere.data.split import split_classes  # noqa: E402
from isosphere.data.transforms import View  # noqa: E402

__all__ = ["CachedSet", "ImageSet", "Images", "View", "open_images", "split_classes"]
