"""CSV and Parquet: one row for each annotation, and one without a kind for an image that has none.

The reader of CSV also takes corners (`xmin`, `ymin`, `xmax`, `ymax`, or `x1` to `y2`), and the usual other names of
columns. Floats are written so that they read back exactly.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from warpdata.errors import BadInputError, CorruptError, WarpError
from warpdata.formats.labels.annotations import Annotation, annotation_of, geometry_columns
from warpdata.formats.labels.conservation import Conservation
from warpdata.formats.labels.files import ImagePlace, LabelFile, LabelFiles, OutputFile, foreign_path
from warpdata.formats.labels.model import LabeledImage, LabelSet

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["read_csv", "read_parquet", "write_csv", "write_parquet"]

_BLOCK_ROWS = 20_000
_GEOMETRY = ("box", "rotation", "polygon", "mask_size", "mask_counts", "keypoints")
_COLUMNS = ("image", "image_width", "image_height", "split", "tags", "kind", "class_name")
_CSV = (*_COLUMNS, "x", "y", "width", "height", "rotation", "geometry", "attributes")
_SYNONYMS = {
    "image": ("image", "path", "file_name", "filename", "image_path", "img_path", "image_id"),
    "class_name": ("class_name", "class", "label", "category", "labelname"),
    "xmin": ("xmin", "x1", "x_min"),
    "ymin": ("ymin", "y1", "y_min"),
    "xmax": ("xmax", "x2", "x_max"),
    "ymax": ("ymax", "y2", "y_max"),
    "x": ("x", "bbox_x", "left"),
    "y": ("y", "bbox_y", "top"),
    "width": ("width", "w", "bbox_width"),
    "height": ("height", "h", "bbox_height"),
    "split": ("split", "set", "subset"),
    "image_width": ("image_width", "img_width"),
    "image_height": ("image_height", "img_height"),
}


def write_csv(labels: LabelSet, account: Conservation) -> Iterator[OutputFile]:
    """Yield `labels.csv`, and the places of images below `images/`."""
    paths: list[str] = []

    def pieces() -> Iterator[bytes]:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, _CSV, lineterminator="\n")
        writer.writeheader()
        for row in _rows(labels, account, paths):
            box = dict(zip(("x", "y", "width", "height"), row.pop("box") or ("",) * 4, strict=True))
            drawn = [row.pop(name) for name in ("polygon", "mask_size", "mask_counts", "keypoints")]
            geometry = drawn[0] or drawn[3] or ({"size": drawn[1], "counts": drawn[2]} if drawn[1] else None)
            row["tags"] = _json(row["tags"]) if row["tags"] else ""
            writer.writerow({**row, **box, "geometry": _json(geometry) if geometry else ""})
            if text.tell() > 1 << 20:
                yield text.getvalue().encode()
                text.seek(0)
                text.truncate()
        yield text.getvalue().encode()

    yield LabelFile("labels.csv", pieces())
    yield from (ImagePlace(f"images/{path}", path) for path in paths)


def write_parquet(labels: LabelSet, account: Conservation) -> Iterator[OutputFile]:
    """Yield `labels.parquet`, and the places of images below `images/`."""
    paths: list[str] = []
    yield LabelFile("labels.parquet", _parquet_pieces(labels, account, paths))
    yield from (ImagePlace(f"images/{path}", path) for path in paths)


def read_csv(files: LabelFiles, account: Conservation) -> LabelSet:
    """Return the images of all CSV files."""
    names = _named(files, (".csv", ".tsv"))

    def rows() -> Iterator[tuple[dict[str, Any], str]]:
        for name in names:
            where = _where(files, name)
            try:
                text = files.read(name).decode("utf-8-sig")
                separator = "\t" if name.lower().endswith(".tsv") else ","
                reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
                columns = _find_columns(reader.fieldnames or (), where, account)
                for row in reader:
                    place = f"{where}:{reader.line_num}"
                    yield _csv_row({key: row[column] or "" for key, column in columns.items()}, place), place
            except (csv.Error, UnicodeDecodeError) as error:
                raise CorruptError(f"{where} is not a CSV file: {error}") from error

    return LabelSet((), _images(rows(), files, account), name=files.name)


def read_parquet(files: LabelFiles, account: Conservation) -> LabelSet:
    """Return the images of all Parquet files that have the columns of `write_parquet`."""
    names = _named(files, (".parquet",))

    def rows() -> Iterator[tuple[dict[str, Any], str]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        for name in names:
            where = _where(files, name)
            try:
                source = pq.ParquetFile(pa.BufferReader(files.read(name)))
                missing = sorted(set(table_schema().names) - set(source.schema_arrow.names))
                if missing:
                    raise BadInputError(f"{where} has no columns {', '.join(missing)}")
                for extra in sorted(set(source.schema_arrow.names) - set(table_schema().names)):
                    account.drop(f"column {extra[:64]}", "annotations have no other columns", where)
                number = 0
                for batch in source.iter_batches(_BLOCK_ROWS, columns=table_schema().names):
                    for row in batch.to_pylist():
                        yield row, f"{where}: row {number}"
                        number += 1
            except (pa.ArrowException, OSError) as error:
                if isinstance(error, WarpError):
                    raise
                raise CorruptError(f"{where} is not a Parquet file of labels: {error}") from error

    return LabelSet((), _images(rows(), files, account), name=files.name)


def table_schema() -> pa.Schema:
    """Return the columns of `labels.parquet`."""
    import pyarrow as pa

    numbers = pa.list_(pa.float64())
    types = {"image_width": pa.int32(), "image_height": pa.int32(), "tags": pa.list_(pa.string()), "box": numbers}
    types |= {"rotation": pa.float64(), "polygon": pa.list_(numbers), "mask_size": pa.list_(pa.int32())}
    types |= {"mask_counts": pa.list_(pa.int64()), "keypoints": numbers}
    names = (*_COLUMNS, *_GEOMETRY, "attributes")
    return pa.schema([pa.field(name, types.get(name, pa.string()), nullable=name != "image") for name in names])


def _rows(labels: LabelSet, account: Conservation, paths: list[str]) -> Iterator[dict[str, Any]]:
    for image in labels.images:
        paths.append(image.path)
        account.take_image(image)
        account.give_image(image)
        size = {"image_width": image.width, "image_height": image.height}
        about = {"image": image.path, **size, "split": image.split, "tags": list(image.tags) or None}
        empty = dict.fromkeys(("kind", "class_name", *_GEOMETRY, "attributes"))
        for columns in map(geometry_columns, image.annotations) if image.annotations else [empty]:
            yield {**about, **columns}


def _parquet_pieces(labels: LabelSet, account: Conservation, paths: list[str]) -> Iterator[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    sent = 0
    writer = pq.ParquetWriter(sink, table_schema(), compression="zstd")
    block: list[dict[str, Any]] = []
    for row in _rows(labels, account, paths):
        block.append(row)
        if len(block) >= _BLOCK_ROWS:
            writer.write_table(pa.Table.from_pylist(block, table_schema()))
            block = []
            yield sink.getvalue()[sent:]
            sent = sink.tell()
    if block or not sent:
        writer.write_table(pa.Table.from_pylist(block, table_schema()))
    writer.close()
    yield sink.getvalue()[sent:]


def _images(
    rows: Iterator[tuple[dict[str, Any], str]], files: LabelFiles, account: Conservation
) -> Iterator[LabeledImage]:
    found: dict[str, LabeledImage] = {}
    present = set(files.names())
    for row, where in rows:
        path = foreign_path(row["image"], where)
        if path in present and f"images/{path}" not in present:
            path = path.removeprefix("images/")
        image = found.get(path)
        if image is None:
            tags = tuple(row["tags"] or ())
            size = (row["image_width"], row["image_height"])
            image = found[path] = LabeledImage(path, [], size[0] or None, size[1] or None, row["split"] or None, tags)
            account.take("images")
        if row["kind"] is not None:
            account.take("objects")
            image.annotations.append(_annotation(row, where))
    for image in found.values():
        account.take_details(image)
        yield image


def _annotation(row: Mapping[str, Any], where: str) -> Annotation:
    try:
        return annotation_of(row)
    except (WarpError, ValueError, KeyError) as error:
        raise CorruptError(f"{where}: {getattr(error, 'message', error)}") from error


def _find_columns(names: Any, where: str, account: Conservation) -> dict[str, str]:
    """Return the column of each of our names."""
    lower = {str(name).strip().lower(): name for name in names if name is not None}
    found: dict[str, str] = {}
    for ours in {*_CSV, *_SYNONYMS}:
        known = next((lower[name] for name in _SYNONYMS.get(ours, (ours,)) if name in lower), None)
        if known is not None:
            found[ours] = known
    if "xmin" in found:  # width and height are those of the image
        sizes = {"image_width": found.pop("width", None), "image_height": found.pop("height", None)}
        found |= {name: column for name, column in sizes.items() if column is not None and name not in found}
    if "image" not in found or "class_name" not in found:
        raise BadInputError(
            f"{where} has no column of images, or none of classes",
            hint=f"Name them image and class_name. The columns are {', '.join(map(str, names))[:200]}.",
        )
    for extra in sorted(set(map(str, lower.values())) - set(map(str, found.values()))):
        account.drop(f"column {extra[:64]}", "annotations have no other columns", where)
    return found


def _csv_row(row: Mapping[str, str], where: str) -> dict[str, Any]:
    """Return a row with the columns of the model."""
    made: dict[str, Any] = dict.fromkeys((*_COLUMNS, *_GEOMETRY, "attributes"))
    made |= {"image": row["image"], "split": row.get("split"), "class_name": row["class_name"]}
    try:
        for side in ("image_width", "image_height"):
            made[side] = int(float(row[side])) if row.get(side) else None
        made["tags"] = msgspec.json.decode(row["tags"], type=list[str]) if row.get("tags") else None
        geometry = msgspec.json.decode(row["geometry"]) if row.get("geometry") else None
        made["attributes"] = row.get("attributes") or None
        made["rotation"] = float(row["rotation"]) if row.get("rotation") else None
        if row.get("xmin"):
            left, top, right, bottom = (float(row[name]) for name in ("xmin", "ymin", "xmax", "ymax"))
            made["box"] = [left, top, right - left, bottom - top]
        elif row.get("x"):
            made["box"] = [float(row[name]) for name in ("x", "y", "width", "height")]
    except (ValueError, KeyError, OverflowError, msgspec.DecodeError) as error:
        raise CorruptError(f"{where}: {error}") from error
    default = ("box" if made["box"] else "label") if row["class_name"] else None
    kind = made["kind"] = row.get("kind") or default
    if kind in ("polygon", "polyline", "keypoints"):
        made["polygon" if kind != "keypoints" else "keypoints"] = geometry
    elif kind == "mask":
        if not isinstance(geometry, dict):
            raise CorruptError(f"{where}: the geometry of a mask has size and counts")
        made |= {"mask_size": geometry.get("size"), "mask_counts": geometry.get("counts")}
    return made


def _named(files: LabelFiles, suffixes: tuple[str, ...]) -> list[str]:
    names = [name for name in files.names() if name.lower().endswith(suffixes)]
    if not names:
        raise BadInputError(f"{files.name} has no {suffixes[0]} file")
    return names


def _where(files: LabelFiles, name: str) -> str:
    return f"{files.name}/{name}" if name not in files.name else files.name


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
