"""The interface in OpenAPI, at /openapi.json: what each address takes and answers."""

from typing import Any

import isosphere

from .limits import MEGA, Limits

Schema = dict[str, Any]
REFUSED = {
    "404": "no such image, label or address",
    "408": "the body came too slowly",
    "409": "the gallery has no model",
    "413": "too many bytes or pixels",
    "415": "no image that can be read",
    "422": "a parameter or embedding that cannot be",
    "503": "too much work at once; come again",
}


def described(limits: Limits, dim: int) -> Schema:
    """The whole description."""
    k = {"type": "integer", "minimum": 1, "maximum": limits.neighbors, "default": 10}
    wanted = [
        _parameter("k", "query", k, "how many neighbors"),
        _parameter("label", "query", {"type": "array", "items": {"type": "string"}}, "only images of these labels"),
    ]
    number = _parameter("id", "path", {"type": "integer", "minimum": 0}, "an image's number")
    image = {"image/*": {"schema": {"type": "string", "format": "binary"}}}
    vector = {"type": "array", "items": {"type": "number"}, "minItems": dim, "maxItems": dim}
    embedded = {"application/json": {"schema": _object({"embedding": vector}, ["embedding"])}}
    found = _answer(_ref("Found"), "best first", "404", "408", "409", "413", "415", "422", "503")
    text, whole = {"type": "string"}, {"type": "integer"}
    label = {"label": text, "images": whole}
    sizes = f"at most {limits.bytes / MEGA:g} million bytes and {limits.pixels / MEGA:g} million pixels"
    paths = {
        "/health": _get("Whether the server works", _object({"status": text, "images": whole, "waiting": whole})),
        "/gallery": _get("What the gallery holds", _ref("Gallery")),
        "/labels": _get(
            "Labels that contain a text",
            _object({"labels": {"type": "array", "items": _object(label)}}),
            [_parameter("like", "query", text, "the text")],
        ),
        "/images": _get(
            "Some images, evenly spread", _object({"results": {"type": "array", "items": _ref("Image")}}), wanted
        ),
        "/embed": {
            "post": {
                "summary": "The embedding of an image",
                "requestBody": {"required": True, "description": sizes, "content": image},
                "responses": _answer(
                    _object({"embedding": vector, "norm": {"type": "number"}}), "of length 1, and the norm it had",
                    "408", "409", "413", "415", "422", "503",
                ),
            }
        },
        "/search": {
            "post": {
                "summary": "The images nearest to an image or to an embedding",
                "parameters": wanted,
                "requestBody": {"required": True, "description": sizes, "content": image | embedded},
                "responses": found,
            }
        },
        "/neighbors/{id}": {
            "get": {
                "summary": "The images nearest to one of the gallery",
                "parameters": [number, *wanted],
                "responses": _answer(_ref("Found"), "best first, without itself", "404", "422", "503"),
            }
        },
        "/thumbnails/{id}": {
            "get": {
                "summary": "The small picture of an image",
                "parameters": [number],
                "responses": {
                    "200": {"description": "a WebP", "content": {"image/webp": {}}},
                    "404": {"description": REFUSED["404"]},
                },
            }
        },
    }  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": {"title": "isosphere gallery", "version": isosphere.__version__},
        "paths": paths,
        "components": {"schemas": _schemas()},
    }


def _schemas() -> Schema:
    text, whole, number = {"type": "string"}, {"type": "integer"}, {"type": "number"}
    maybe = {"type": ["string", "null"]}
    image = {"id": whole, "label": maybe, "path": text, "thumbnail": maybe}
    return {
        "Image": _object(image),
        "Neighbor": _object(image | {"score": number | {"description": "cosine"}}),
        "Found": _object(
            {"query": _ref("Image"), "results": {"type": "array", "items": _ref("Neighbor")}}, ["results"]
        ),
        "Gallery": _object(
            {
                "name": text, "images": whole, "labels": whole, "dim": whole, "takes_images": {"type": "boolean"},
                "limits": _object({"bytes": whole, "pixels": whole, "neighbors": whole}),
            }
        ),
        "Error": _object({"error": text}),
    }  # fmt: skip


def _object(properties: Schema, required: list[str] | None = None) -> Schema:
    """An object; all of its fields are there, unless it is said which."""
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _parameter(name: str, place: str, schema: Schema, about: str) -> Schema:
    return {"name": name, "in": place, "required": place == "path", "schema": schema, "description": about}


def _get(summary: str, schema: Schema, parameters: list[Schema] | None = None) -> Schema:
    return {"get": {"summary": summary, "parameters": parameters or [], "responses": _answer(schema, "as it is now")}}


def _answer(schema: Schema, about: str, *refused: str) -> Schema:
    """The answer, and how the request can be refused."""
    error = {"application/json": {"schema": _ref("Error")}}
    answers = {"200": {"description": about, "content": {"application/json": {"schema": schema}}}}
    return answers | {code: {"description": REFUSED[code], "content": error} for code in refused}
