"""The HTTP interface: what each address answers. Nothing outside of the gallery is served."""

import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from http import HTTPStatus

import torch
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp
from torch import Tensor

from isosphere.data.transforms import TestView
from isosphere.errors import BadArgument
from isosphere.gallery import Gallery
from isosphere.inference import evaluation_view
from isosphere.sphere import directions, norms

from .answers import Json, bad, no_such, refusal
from .catalog import Catalog
from .guard import Guard
from .limits import Limits
from .openapi import described
from .page import page_routes
from .reading import Budget, image_of, vector_of
from .worker import Job, Worker


def make_app(gallery: Gallery, limits: Limits | None = None, hosts: Collection[str] = ()) -> ASGIApp:
    """The app for this gallery, whose model is loaded now. It answers to these `hosts` alone; without any, to all."""
    service = Service(gallery, limits or Limits())

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        service.worker.close()

    handlers = {HTTPException: _refused, Exception: _failed}
    app = Starlette(routes=service.routes(), lifespan=lifespan, exception_handlers=handlers)  # type: ignore[arg-type]
    return Guard(app, hosts)


class Service:
    """A gallery, its model behind a queue, and the limits."""

    def __init__(self, gallery: Gallery, limits: Limits) -> None:
        if not len(gallery):
            raise BadArgument("gallery", str(gallery.folder), "one with images in it")
        self.gallery, self.limits, self.catalog = gallery, limits, Catalog(gallery)
        self.worker, self.budget = Worker(gallery, limits), Budget(limits.held)
        # Vectors that were given have no model: they are searched by vectors and by rows.
        self.view = None if gallery.manifest.model is None else evaluation_view(gallery.model.recipe.data)
        if self.view is not None:  # what is slow the first time is done before anybody waits
            self.worker.work([Job(pixels=self.view(torch.zeros(3, 9, 9, dtype=torch.uint8)), k=1)])

    def routes(self) -> list[Route]:
        """Every address."""
        return [
            Route("/health", self.health),
            Route("/gallery", self.about),
            Route("/labels", self.labels),
            Route("/images", self.images),
            Route("/embed", self.embed, methods=["POST"]),
            Route("/search", self.search, methods=["POST"]),
            Route("/neighbors/{id:int}", self.neighbors),
            Route("/thumbnails/{id:int}", self.thumbnail),
            Route("/openapi.json", self.openapi),
            *page_routes(),
        ]

    async def health(self, request: Request) -> Response:
        """Whether it works, and how much waits."""
        return Json({"status": "ok", "images": len(self.gallery), "waiting": self.worker.waiting})

    async def about(self, request: Request) -> Response:
        """What the page begins with."""
        limits = {name: getattr(self.limits, name) for name in ("bytes", "pixels", "neighbors")}
        return Json({**self.catalog.about, "takes_images": self.view is not None, "limits": limits})

    async def labels(self, request: Request) -> Response:
        """Some labels that contain what was typed."""
        return Json({"labels": self.catalog.like(request.query_params.get("like", ""))})

    async def images(self, request: Request) -> Response:
        """Some images to begin with, of all labels or of one."""
        job = self._wanted(request)
        return Json({"results": self.catalog.sample(job.k, job.labels)})

    async def embed(self, request: Request) -> Response:
        """An image as a unit vector, and the norm that it had."""
        if _is_json(request):
            raise bad("send an image file as the body")
        job = await self._asked(request, Job())
        assert job.embedding is not None
        unit, norm = directions(job.embedding)[0].tolist(), float(norms(job.embedding)[0])
        return Json({"embedding": unit, "norm": norm}, headers=_timing(job))

    async def search(self, request: Request) -> Response:
        """Neighbors of an image file, or of an embedding in JSON."""
        return self._found(await self._asked(request, self._wanted(request)))

    async def neighbors(self, request: Request) -> Response:
        """Neighbors of an image of the gallery, without itself."""
        job = self._wanted(request)
        job.row = self._row(request)
        with self.worker.place():
            return self._found(await self.worker.done(job))

    async def thumbnail(self, request: Request) -> Response:
        """The small picture of an image."""
        picture = self.gallery.thumbnail(self._row(request))
        if not picture:
            raise no_such("picture of this image")
        # The address of a picture names its gallery, so it can be kept.
        headers = {"Cache-Control": "private, max-age=86400, immutable"} if "of" in request.query_params else {}
        return Response(picture, media_type="image/webp", headers=headers)

    async def openapi(self, request: Request) -> Response:
        """This interface for tools."""
        return Json(described(self.limits, self.gallery.manifest.width))

    async def _asked(self, request: Request, job: Job) -> Job:
        """The job of the image or embedding that is sent, done."""
        vector = _is_json(request)
        if not vector and self.view is None:
            raise refusal(HTTPStatus.CONFLICT, "this gallery has no model to embed images: send an embedding as JSON")
        if request.headers.get("content-type", "").startswith("multipart/"):
            reason = "send the image file itself as the body, not a form: curl --data-binary @photo.jpg"
            raise refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, reason)
        with self.budget.body() as body:
            most = self.limits.json if vector else self.limits.bytes
            content = await body.read(request, most, self.limits.seconds)
            with self.worker.place():
                if vector:
                    job.embedding = vector_of(content, self.gallery.manifest.width)
                else:
                    begin = time.perf_counter()
                    job.pixels = await self.worker.decoded(self._seen, content)
                    job.came = time.perf_counter()
                    job.seconds["decode"] = job.came - begin
                return await self.worker.done(job)

    def _seen(self, content: bytearray) -> Tensor:
        """An image file as the model sees it, uint8 (3, S, S)."""
        assert self.view is not None
        view = self.view
        frame = view.stored.frame if isinstance(view, TestView) and view.fit == "crop" else (0, 0)
        return view(image_of(content, self.limits, frame))

    def _wanted(self, request: Request) -> Job:
        """How many neighbors, and of which labels."""
        text, labels = request.query_params.get("k", "10"), tuple(sorted(set(request.query_params.getlist("label"))))
        if not (text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= self.limits.neighbors):
            raise bad(f"k must be a number from 1 to {self.limits.neighbors}")
        for label in labels:
            if label not in self.catalog.counts:
                raise no_such("such label")
        return Job(k=int(text), labels=labels)

    def _row(self, request: Request) -> int:
        row = self.catalog.row(request.path_params["id"])
        if row is None:
            raise no_such("such image")
        return row

    def _found(self, job: Job) -> Response:
        found = [{**self.catalog.item(row), "score": score} for row, score in zip(job.rows, job.scores, strict=True)]
        asked = {} if job.row < 0 else {"query": self.catalog.item(job.row)}
        return Json({**asked, "results": found}, headers=_timing(job))


def _is_json(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"


def _timing(job: Job) -> dict[str, str]:
    """The seconds of each part of the work, where a browser shows them."""
    parts = [f"{name};dur={1000 * value:.2f}" for name, value in job.seconds.items()]
    return {"Server-Timing": ", ".join([*parts, f'batch;desc="{job.together}"'])}


async def _refused(request: Request, error: HTTPException) -> Response:
    return Json({"error": error.detail}, error.status_code, error.headers)


async def _failed(request: Request, error: Exception) -> Response:
    return Json({"error": "the server failed at this request; its log says why"}, HTTPStatus.INTERNAL_SERVER_ERROR)
