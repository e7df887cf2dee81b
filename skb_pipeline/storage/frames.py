"""Frames: the tables the pipeline keeps, each declared once with its columns, its file and who makes it.

A declaration (``retrieval.ranking.RANKING``, ``planning.frames.PLANS`` …) gives the schema of the Parquet file, the
check before writing, the content hash, and the message for a file of an earlier version. Parquet is the truth of every
frame.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from skb_pipeline.storage.artifacts import Artifact, ManifestMismatchError, stable_hash
from skb_pipeline.storage.duck import frame_hash


@dataclass(frozen=True)
class Column:
    """One column of a frame.

    Attributes:
        type: of the stored values.
        filled: no value is missing.
        unique: no value occurs twice.
        least, most: bounds of numbers, inclusive.
        one_of: the only values there may be.
        cost: tells what a row cost (time, tokens), which is no part of the content.
    """

    type: pa.DataType
    filled: bool = False
    unique: bool = False
    least: float | None = None
    most: float | None = None
    one_of: Collection[str] = ()
    cost: bool = False


@dataclass(frozen=True)
class Frame:
    """One kind of table.

    Attributes:
        name: what people see.
        description: one sentence on its rows.
        file: name of its Parquet file inside an artefact.
        key: columns that together occur once.
        columns: in stored order.
    """

    name: str
    description: str
    file: str
    key: tuple[str, ...]
    columns: Mapping[str, Column] = field(repr=False)

    @cached_property
    def schema(self) -> pa.Schema:
        """Names and types."""
        return pa.schema([(name, column.type) for name, column in self.columns.items()])

    @property
    def names(self) -> list[str]:
        """Names of the columns, in stored order."""
        return list(self.columns)

    @property
    def content(self) -> list[str]:
        """Names of the columns that make up the content of a row."""
        return [name for name, column in self.columns.items() if not column.cost]

    @cached_property
    def version(self) -> str:
        """Changes with any name or type of the columns (8 hex digits)."""
        return stable_hash([[f.name, str(f.type)] for f in self.schema])[:8]

    def table(self, frame: pd.DataFrame) -> pa.Table:
        """``frame`` as an Arrow table of exactly the declared columns and types.

        Raises:
            KeyError: a column is missing.
            pyarrow.ArrowInvalid, pyarrow.ArrowTypeError: a column holds values of another type.
        """
        return pa.Table.from_pandas(frame[self.names], schema=self.schema, preserve_index=False)

    def hash(self, frame: pd.DataFrame) -> str:
        """Content hash of the rows, whatever their order; costs are left out. Node ids count as they are, so a frame
        that holds any is hashed under external ids by a function of its own room."""
        return frame_hash(frame[self.content])

    def write(self, folder: Path, frame: pd.DataFrame) -> None:
        """Write the frame's file into a folder; raises like :meth:`table`."""
        pq.write_table(self.table(frame), folder / self.file, compression="zstd")

    def read(self, artifact: Artifact, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """The frame of an artefact, or some of its columns (lists arrive as numpy arrays).

        Raises:
            ArtifactMissingError: the file is not there.
            ManifestMismatchError: it was written by a version that had other columns; the message says what makes it
                anew.
        """
        path = artifact.file(self.file)
        wanted = list(columns) if columns is not None else self.names
        lacking = [name for name in wanted if name not in pq.read_schema(path).names]
        if lacking:
            dataset, asset = artifact.manifest["dataset"], artifact.manifest["asset"]
            raise ManifestMismatchError(
                f"{path} has no column {', '.join(lacking)}, as an earlier version wrote it: "
                f"run `skb-pipeline run --dataset {dataset} --to {asset}`"
            )
        return read_frame(path, wanted)


def write_frame(path: Path, frame: pd.DataFrame, schema: pa.Schema) -> None:
    """Write ``frame`` with exactly the columns and types of ``schema``, for a file inside an index.

    Raises:
        pyarrow.ArrowInvalid, KeyError: a column is missing or holds values of another type.
    """
    table = pa.Table.from_pandas(frame[schema.names], schema=schema, preserve_index=False)
    pq.write_table(table, path, compression="zstd")


def read_frame(path: Path, columns: list[str] | None = None) -> pd.DataFrame:
    """Read a Parquet file into pandas (list columns arrive as numpy arrays)."""
    return pq.read_table(path, columns=columns).to_pandas()
