"""Search with a trained model: a gallery of images as unit vectors, kept in a folder, and what is nearest in it."""

from isosphere.gallery.gallery import Found, Gallery, load_gallery
from isosphere.gallery.given import add, create, remove
from isosphere.gallery.update import Changes, forget, index

__all__ = ["Changes", "Found", "Gallery", "add", "create", "forget", "index", "load_gallery", "remove"]
