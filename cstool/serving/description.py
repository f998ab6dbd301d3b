"""`/openapi.json`: the description of the API, made of the models of its requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from cstool.serving.schema import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    EmbeddingRequest,
    TokenizeRequest,
)

POSTS: dict[str, tuple[type[BaseModel], str]] = {
    "/v1/chat/completions": (ChatRequest, "The next message of a conversation."),
    "/v1/completions": (CompletionRequest, "Texts that go on from prompts."),
    "/v1/embeddings": (EmbeddingRequest, "Vectors of texts."),
    "/tokenize": (TokenizeRequest, "The tokens of a text."),
    "/detokenize": (DetokenizeRequest, "The text of tokens."),
}
_GETS = {
    "/v1/models": "The model, and the model with each adapter.",
    "/public/v1/models": "The same, without a key.",
    "/v1/tcp_warming": "Nothing: a client opens its connection.",
    "/health": "Whether requests are taken.",
}
_STATUSES = {
    "400": "A field is wrong, or the model cannot do what is asked.",
    "401": "The key is missing or wrong.",
    "403": "A foreign page asks.",
    "404": "There is no such model.",
    "408": "The body came too slowly.",
    "413": "The body is too long.",
    "415": "The body is of another kind.",
    "421": "The server is not asked under that name.",
    "429": "Too many requests wait.",
    "500": "The model failed.",
    "503": "The server is about to end.",
}


def openapi(version: str, models: Sequence[str]) -> dict[str, Any]:
    """Return the description, as of OpenAPI 3.1.

    Args:
        version: of cstool
        models: their names
    """
    refs = "#/components/schemas/{model}"
    kinds = [(kind, "validation") for kind, _ in POSTS.values()]
    names, found = models_json_schema(kinds, ref_template=refs)  # type: ignore[arg-type]
    schemas = found.get("$defs", {})
    schemas["Error"] = _ERROR
    for schema in schemas.values():
        if (field := schema.get("properties", {}).get("model")) is not None:
            field["enum"] = [*models, None] if "anyOf" in field else list(models)
    paths: dict[str, Any] = {}
    for path, (kind, text) in POSTS.items():
        body = {"required": True, "content": {"application/json": {"schema": names[kind, "validation"]}}}
        responses = _responses(_STATUSES)
        if path in ("/v1/chat/completions", "/v1/completions"):
            responses["200"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
        paths[path] = {"post": {"summary": text, "requestBody": body, "responses": responses}}
    few = {status: _STATUSES[status] for status in ("401", "403", "421", "503")}
    for path, text in _GETS.items():
        paths[path] = {"get": {"summary": text, "responses": _responses(few)}}
    model = {"name": "model", "in": "path", "required": True, "schema": {"enum": list(models)}}
    for path in ("/v1/models/{model}", "/public/v1/models/{model}"):
        responses = _responses({**few, "404": _STATUSES["404"]})
        paths[path] = {"get": {"summary": "One model.", "parameters": [model], "responses": responses}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "cstool serve", "version": version},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _responses(statuses: dict[str, str]) -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    found: dict[str, Any] = {
        "200": {"description": "The answer.", "content": {"application/json": {"schema": {"type": "object"}}}}
    }
    return found | {status: {"description": text, "content": error} for status, text in statuses.items()}


_TEXT_OR_NULL = {"type": ["string", "null"]}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": _TEXT_OR_NULL,
                "code": _TEXT_OR_NULL,
            },
        }
    },
}
