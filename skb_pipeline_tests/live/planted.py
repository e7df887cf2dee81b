"""Secrets in the environment that are looked for afterwards."""

from __future__ import annotations

from pathlib import Path

_MARK = "planted7Qz1"
_SECRETS = {
    "NEO4J_PASSWORD": f"{_MARK}-of-neo4j",
    "OPENAI_API_KEY": f"sk-{_MARK}-of-a-model",
    "SKB_ALERT_URL": f"http://127.0.0.1:9/{_MARK}-of-alerts",
}


def planted_environment() -> dict[str, str]:
    """Variables whose values are secrets."""
    return dict(_SECRETS)


def found_below(*places: Path) -> list[str]:
    """Files, and names of files, at or below some places that hold one of them; databases and their logs too."""
    files = [path for place in places for path in (place.rglob("*") if place.is_dir() else [place])]
    assert files
    held = [path for path in files if path.is_file() and _MARK.encode() in path.read_bytes()]
    return sorted({str(path) for path in [*held, *(path for path in files if _MARK in path.name)]})
