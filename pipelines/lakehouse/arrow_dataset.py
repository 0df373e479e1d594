"""A table in object storage as an Arrow dataset that DuckDB reads: no extension, and only files that may hold a row.

Each file carries its partition values and the bounds that the Delta log keeps of the columns it is sorted by, so that
`trajectory_id = ?` opens one file. The types are the table's; columns that an older file lacks are null.
"""

from __future__ import annotations

import datetime as dt
import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trajlake.pipelines.lakehouse.arrow_schema import ARROW_TYPES, arrow_schema
from trajlake.pipelines.lakehouse.object_places import SCHEME, arrow_filesystem
from trajlake.schemas.columns import Table

if TYPE_CHECKING:
    from trajlake.pipelines.lakehouse.lake import DataFile


def dataset_of(table: Table, directory: str, files: Sequence[DataFile]) -> Any:
    """Return the rows of `files`, which stand below `directory`, as a dataset with every column of `table`.

    Nothing is read here.
    """
    import pyarrow.dataset as ds

    kind = ds.ParquetFileFormat()
    filesystem = arrow_filesystem(directory)
    fragments = [
        kind.make_fragment(
            file.path.removeprefix(SCHEME), filesystem=filesystem, partition_expression=_known(table, file)
        )
        for file in files
    ]
    return ds.FileSystemDataset(fragments, arrow_schema(table), kind, filesystem=filesystem)


def _known(table: Table, file: DataFile) -> Any:
    """Return what is true of every row of a file. Bounds say nothing of nulls, so only of columns without any."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    types = {column.name: ARROW_TYPES[column.type] for column in table.columns}
    facts = []
    for name, text in file.partition.items():
        value = dt.date.fromisoformat(text) if pa.types.is_date(types[name]) else text
        facts.append(ds.field(name) == pa.scalar(value, types[name]))
    for column in table.columns:
        low, high = file.minimum.get(column.name), file.maximum.get(column.name)
        if column.name in table.sort_by and not column.nullable and low is not None and high is not None:
            facts.append(ds.field(column.name) >= pa.scalar(low, types[column.name]))
            facts.append(ds.field(column.name) <= pa.scalar(high, types[column.name]))
    return functools.reduce(operator.and_, facts) if facts else ds.scalar(True)
